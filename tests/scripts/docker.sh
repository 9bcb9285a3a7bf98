#!/bin/bash
# docker.sh -- the files of docker/ without an engine and without other hosts: shellcheck, every mistake of a hosts file, what each
# command of docker/cluster would do (--dry-run), keys that docker/worker refuses, and the form of the other files.
# timeout: 300
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck disable=SC2317 # called by expect
top=$(cd "$(dirname "$0")/../.." && pwd)
docker=$top/docker
work=$(mktemp -d /tmp/run_dist_docker.XXXXXX) || exit 2 # other users can reach it: the worker below is not root
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
skip() {
    echo "skipped: $1"
    skipped=$((skipped + 1))
}
if ! command -v ssh > /dev/null || ! command -v ssh-keygen > /dev/null; then
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

if command -v shellcheck > /dev/null; then
    for f in cluster worker slurm.sbatch; do expect "shellcheck $f" 0 "" shellcheck "$docker/$f"; done
else
    skip "no shellcheck"
fi

# --- docker/cluster: hosts files. One row: what is in the file, and what is said of it.
cluster() { timeout 60 "$docker/cluster" --dir "$work/own" --hosts hosts --dry-run "$@"; }
while IFS='|' read -r text want; do
    printf '%b' "$text" > hosts
    expect "hosts file: $text" 2 "$want" cluster status
done << 'END'
|no host in 'hosts'
# none\n\n|no host in 'hosts'
a\n\n# two\nb slots=0\n|hosts:4: slots must be a number from 1 to 4096, not '0'
a slots=two\n|hosts:1: slots must be a number
a slots=\n|hosts:1: slots must be a number
a slots=99999999999999999999\n|hosts:1: slots must be a number
a slots 2\n|hosts:1: 'slots' is not of the form key=value
a slot=2\n|hosts:1: unknown key 'slot'; keys: slots user port login_user login_port
a port=65536\n|hosts:1: port must be a number from 1 to 65535
a login_port=x\n|hosts:1: login_port must be a number
a user=-oProxyCommand=x\n|hosts:1: '-oProxyCommand=x' is no user name
a user=\n|hosts:1: '' is no user name
a login_user=a;b\n|hosts:1: 'a;b' is no user name
-oProxyCommand=x\n|hosts:1: '-oProxyCommand=x' is no host name
a,b slots=2\n|hosts:1: 'a,b' is no host name
a:2\n|hosts:1: 'a:2' is no host name
a\033[2Jb\n|hosts:1: 'a?.2Jb' is no host name
$(id)\n|hosts:1: '.(id)' is no host name
.a\n|hosts:1: '.a' is no host name
\xc3\xa9\n|is no host name
a\nb\na slots=2\n|hosts:3: host 'a' is listed twice
END
rm hosts
expect "no hosts file" 2 "no hosts file 'hosts'" cluster status
printf '# first this one\r\nnode1 slots=3  # three\r\n\nnode2\tslots=2 user=ann port=2022 login_user=bob login_port=2200' > hosts
expect "comments, tabs, line ends of Windows, no last line end" 0 "ssh_config -- node2 true" cluster status

# --- docker/cluster: what it would do; one row: options and command, a piece of what is printed
echo '{}' > c.json
while IFS='|' read -r args want; do
    # shellcheck disable=SC2086 # words
    expect "dry run: $args" 0 "$want" cluster $args
done << 'END'
keys|^+ ssh-keygen -q -t ed25519 -N '' -C run_dist_cluster -f .*/own/id
distribute|^+ ssh -p 2200 -l bob -- node2 sh -s
distribute|file='.run_dist_cluster/node2/authorized_keys'
--engine ssh distribute|file='.ssh/authorized_keys'
up|--network host --ipc host --cap-add SYS_PTRACE
up|image='run_dist:0.1.0'
--image=here/run_dist:2 up|image='here/run_dist:2'
--engine worker up|^+ scp -- .*/docker/worker node1:.run_dist_cluster/node1/worker
--engine ssh up|node2: its own sshd on port 2022, nothing to start
--mount /data --mount /home/ann up|mounts='/data /home/ann'
status|^+ ssh -F .*/own/ssh_config -- node1 true
doctor|^+ docker run .* -np 2 .* --map-by node hostname
run c.json --logdir=logs/x|^+ docker run --rm --init .* run_dist:0.1.0 mpirun .* run_dist --config_file=c.json --logdir=logs/x$
--engine ssh run c.json|mpirun .*--hostfile .*/own/hostfile -np 5 --bind-to none --map-by slot
--engine ssh run c.json|keepalive_time 5 .*keepalive_intvl 1 .*keepalive_probes 3
--engine ssh run c.json|odls_base_sigkill_timeout 30
--engine ssh --kill_delay 7 --np 2 run c.json|-np 2 .*odls_base_sigkill_timeout 7
--engine ssh --restarts 5 run c.json|^+ run_dist --restarts=5 --drop_dead_hosts -- mpirun .* run_dist --config_file=c.json$
--restarts 5 run c.json|^+ docker run .* run_dist:0.1.0 run_dist --restarts=5 --drop_dead_hosts -- mpirun --hostfile
--engine ssh --network 10.0.0.0/24 run c.json|oob_tcp_if_include 10.0.0.0/24 -mca btl_tcp_if_include 10.0.0.0/24
--engine ssh --ports 46000 run c.json|oob_tcp_dynamic_ipv4_ports 46000-46049 -mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 100
--engine ssh --mpi=--tag-output run c.json --set threads=1|--tag-output run_dist --config_file=c.json --set threads=1
shell node2 hostname|^+ ssh -t -F .*/own/ssh_config -- node2 hostname
down|^+ ssh -p 2200 -l bob -- node2 sh -s
--engine podman down --forget|grep -vxF "restrict,pty $key run_dist_cluster"
END
# The line is written for the mpirun that is found: what it says of its version, a piece of the line.
mkdir mpi
# shellcheck disable=SC2016 # a script
printf '#!/bin/sh\ncat "$(dirname "$0")/version"\n' > mpi/mpirun
chmod 755 mpi/mpirun
found() { (echo "$1" > mpi/version && PATH=$work/mpi:$PATH cluster --engine ssh --network 10.0.0.0/24 --ports 46000 run c.json); }
while IFS='|' read -r version status want; do
    expect "$version: $want" "$status" "$want" found "$version"
done << 'END'
mpirun (Open MPI) 4.1.4|0|-mca plm_rsh_args -F\\ .*/own/ssh_config -mca plm_rsh_no_tree_spawn 1 -mca oob_tcp_keepalive_time 5
mpirun (Open MPI) 4.1.4|0|-mca odls_base_sigkill_timeout 30 -mca oob_tcp_if_include 10.0.0.0/24 -mca btl_tcp_if_include 10.0.0.0/24
mpirun.openmpi (OpenRTE) 4.1.2|0|-mca plm_rsh_args
mpirun (Open MPI) 5.0.11|0|--prtemca plm_ssh_args -F\\ .*/own/ssh_config --prtemca plm_ssh_no_tree_spawn 1 --prtemca oob_tcp_keepalive_time 5
mpirun (Open MPI) 5.0.11|0|keepalive_probes 3 --prtemca oob_tcp_if_include 10.0.0.0/24 -mca btl_tcp_if_include 10.0.0.0/24
mpirun (Open MPI) 5.0.11|0|--prtemca oob_tcp_dynamic_ipv4_ports 46000-46049 -mca btl_tcp_port_min_v4 46050
mpirun (Open MPI) 6.0.0a1|0|--prtemca plm_ssh_args
mpirun (Open MPI) 1.10.2|2|mpirun is Open MPI 1.10; 4.1 or later is needed
mpirun (Open MPI) 4.0.5|2|mpirun is Open MPI 4.0; 4.1 or later is needed
HYDRA build details:|2|mpirun is not Open MPI's: 'HYDRA build details:'
END
no_kill_delay() { found "mpirun (Open MPI) 5.0.11" | grep odls; }
expect "Open MPI 5 has no kill delay to set" 1 "" no_kill_delay
expect "the dry runs made nothing" 1 "" test -e own
while IFS='|' read -r args want; do
    # shellcheck disable=SC2086 # words
    expect "refused: $args" 2 "$want" cluster $args
done << 'END'
|from one host to many
start|unknown command 'start'; one of keys distribute up status doctor run shell down
--engine lxc up|--engine is docker, podman, worker or ssh, not 'lxc'
--colour up|unknown option '--colour'
up now|up takes no more words, not 'now'
--np 6 run c.json|--np 6, but the hosts file has 5 slots
--np none run c.json|--np must be a number
run|run needs a config
run none.json|no config 'none.json'
--restarts many run c.json|--restarts must be a number
--timeout 0 up|--timeout must be a number from 1 to 3600
--image a;b up|'a;b' may contain only letters
--mount data up|--mount 'data' must begin with /
--docker_args $(id) up|--docker_args takes plain words only
--program run_dist';id;' status|--program takes plain words only
--program $(id) status|--program takes plain words only
--program=-x status|--program takes plain words only and is no option, not '-x'
down --all|down takes --forget, not '--all'
shell node3|no host 'node3'
END
expect "no password anywhere" 1 "" grep -n -i -E 'sshpass|--password |StrictHostKeyChecking[ =]no' "$docker/cluster" "$docker/worker"

# --- docker/cluster: where a host's key comes from, and what reaches a shell there. The other host is a folder here.
mkdir -p fake host home/.ssh
# shellcheck disable=SC2016 # scripts
printf '#!/bin/bash\nfor w; do [ "$w" != -- ] || break; shift; done\nshift 2\ncase $* in cat*) cat readable 2> /dev/null ;; ssh-keyscan*) cat ported 2> /dev/null ;; *) cd host && exec "$@" ;; esac\n' > fake/ssh
printf '#!/bin/sh\necho "$*" >> scanned\necho "node1 ssh-ed25519 %s"\n' "$(echo scanned-key-of-another-machine-- | base64)" > fake/ssh-keyscan
chmod 755 fake/*
echo node1 > hosts
real() { HOME=$work/home PATH=$work/fake:$PATH timeout 60 "$docker/cluster" --dir "$work/real" --hosts hosts --engine ssh --timeout 20 "$@"; }
expect "a key pair" 0 "" real keys
expect "a host key that cannot be read" 1 "FAIL node1: its host key cannot be read there .*--trust_scanned_keys" real distribute
expect "nothing is taken from the network" 1 "" test -e scanned
expect "nor believed" 1 "" test -e real/known_hosts
expect "a key from the network, asked for" 0 "WARNING node1: its host key comes from the network and nothing proves it" real --trust_scanned_keys distribute
expect "the host is behind --" 0 "-- node1$" cat scanned
rm scanned real/known_hosts
echo "node1 ssh-ed25519 $(echo known-key | base64)" > home/.ssh/known_hosts
expect "a key that your own ssh knows" 0 "ok   node1" real distribute
expect "is the one" 0 "$(echo known-key | base64)" cat real/known_hosts
rm real/known_hosts
echo "ssh-ed25519 $(echo read-key | base64) root@node1" > readable
expect "a key that can be read there" 0 "ok   node1" real distribute
expect "is the one, first" 0 "$(echo read-key | base64)" cat real/known_hosts
rm real/known_hosts
echo "[127.0.0.1]:22 ssh-ed25519 $(echo key-of-the-port | base64)" > ported
expect "the key that the host sees on the port" 0 "ok   node1" real distribute
expect "comes before its file" 0 "$(echo key-of-the-port | base64)" cat real/known_hosts
expect "down forgets" 0 "ok   node1" real down --forget
expect "the host's key, too" 1 "" grep . real/known_hosts
expect "and takes back the own key" 1 "" grep run_dist_cluster host/.ssh/authorized_keys
rm ported
printf 'ssh-rsa $(touch\033[2J) x\n' > readable
expect "a key that is none" 1 "FAIL node1: 'ssh-rsa .(touch?.2J)' is no ed25519 host key" real distribute
rm home/.ssh/known_hosts readable
expect "the scans" 1 "" test -e scanned
doctored() { real --program "$work/it's; touch pwned" doctor; }
expect "a program with a quote" 2 "--program takes plain words only" doctored
expect "no word of it ran" 1 "" test -e host/pwned
echo 'node1 slots=2' > hosts
printf '#!/bin/sh\nprintf "a\\033[2Jb\\302\\233c\\n" >&2\nexit 255\n' > fake/ssh
expect "what another host prints" 1 "^down node1 port 22: a?.2Jb?c$" real status

# --- docker/worker: keys and options it refuses
mkdir -m 700 keys
ssh-keygen -q -t ed25519 -N '' -f key
good() {
    chmod 700 keys
    rm -f keys/*
    cp key.pub keys/authorized_keys
    chmod 600 keys/authorized_keys
}
root=()
[ "$(id -u)" -ne 0 ] || root=(--allow-root)
worker() { timeout 60 sh "$docker/worker" --keys keys --check "${root[@]}" "$@"; }
if [ -x /usr/sbin/sshd ] || command -v sshd > /dev/null; then
    while IFS='|' read -r prepare want; do
        good
        eval "$prepare"
        expect "worker: $prepare" 2 "$want" worker
    done << 'END'
chmod 755 keys|'.*keys' has mode 755, so others may read or change it; chmod 700
chmod 770 keys|has mode 770
chmod 644 keys/authorized_keys|authorized_keys' has mode 644, .*; chmod 600
chmod 660 keys/authorized_keys|authorized_keys' has mode 660
cp key keys/host_key; chmod 640 keys/host_key|host_key' has mode 640
cp key keys/id; chmod 644 keys/id|id' has mode 644
rm keys/authorized_keys|authorized_keys' is missing; cluster distribute writes it
: > keys/authorized_keys|is empty; cluster distribute writes it
echo nonsense > keys/authorized_keys|there is no key in
END
    # The folders above the keys.
    good
    mkdir -p above/keys
    cp keys/authorized_keys above/keys
    chmod 700 above/keys
    above() { timeout 60 sh "$docker/worker" --keys above/keys --check "${root[@]}"; }
    expect "worker: folders above that are safe" 0 "keys and configuration are fine" above
    chmod 777 above
    expect "worker: a folder above that all may write" 2 "'.*/above', above the keys, can be written by others (drwxrwxrwx)" above
    chmod 1777 above
    expect "worker: with the sticky bit, as /tmp" 0 "keys and configuration are fine" above
    chmod 775 above
    expect "worker: a folder above that a group may write" 2 "'.*/above', above the keys, can be written by others" above
    chmod 755 above
    if [ "$(id -u)" -eq 0 ]; then
        chown 1234 above
        expect "worker: a folder above of another user" 2 "'.*/above', above the keys, belongs to user 1234" above
        chown 0 above
    fi
    good
    [ -d /run/sshd ] || [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    expect "worker: good keys" 0 "keys and configuration are fine" worker
    expect "worker: --check makes no host key" 1 "" test -e keys/host_key
    chmod 755 keys
    chmod 644 keys/authorized_keys
    expect "worker: a mount, whose modes are not its own" 0 "are fine" worker --mounted
    good
    expect "worker: a port that is none" 2 "--port must be 1 to 65535, not 65536" worker --port 65536
    expect "worker: a port in letters" 2 "--port must be a number, not '12a'" worker --port 12a
    expect "worker: an address with a line of its own" 2 "--listen must be an address" worker --listen $'127.0.0.1\nPermitRootLogin yes'
    expect "worker: an address that is an option" 2 "--listen must be an address, not '-x'" worker --listen -x
    expect "worker: an unknown option" 2 "unknown option '--prot'" worker --prot 1
    expect "worker: no folder" 2 "no keys folder 'none'" worker --keys none
    if [ "$(id -u)" -eq 0 ]; then
        expect "worker: root must be asked for" 2 "runs as root" timeout 60 sh "$docker/worker" --keys keys --check
        chown 1234 keys
        expect "worker: keys of another user" 2 "belongs to user 1234, but the worker runs as user 0; .*--build-arg UID=1234" worker
        chown 0 keys
    fi
    # It runs, takes the key alone, and ends on TERM with its sshd.
    while port=$((20000 + RANDOM % 12000)) && (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done # from 32768 on the kernel takes them itself
    if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null; then # without root, as in a container
        chmod 755 "$work"
        chown -R 65534:65534 keys
        run=(env TMPDIR=/tmp HOME=/ setpriv --reuid 65534 --regid 65534 --clear-groups)
        cp "$docker/worker" worker.sh
    else
        run=(env) && cp "$docker/worker" worker.sh
    fi
    listens() { timeout 5 ssh-keyscan -T 2 -p "$port" 127.0.0.1 2> /dev/null | grep -q ed25519; }
    "${run[@]}" sh worker.sh --keys "$work/keys" --port "$port" --listen 127.0.0.1 > out 2>&1 &
    pid=$!
    wait_until 60 listens
    expect "worker: it listens, as no root" 0 "listens on port $port" cat out
    expect "worker: the host key is made and kept" 0 "$(cut -d' ' -f2 keys/host_key.pub)" timeout 10 ssh-keyscan -T 5 -t ed25519 -p "$port" 127.0.0.1
    expect "worker: no passwords" 255 "Permission denied (publickey)" timeout 10 ssh -p "$port" -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null -o PubkeyAuthentication=no -o BatchMode=yes 127.0.0.1 true
    kill -TERM $pid
    wait $pid
    expect "worker: ends on TERM" 0 "^0$" echo $?
    expect "worker: its sshd too" 255 "refused" timeout 10 ssh -p "$port" -o BatchMode=yes 127.0.0.1 true
    "${run[@]}" sh worker.sh --keys "$work/keys" --port "$port" --listen 127.0.0.1 > out 2>&1 &
    pid=$!
    wait_until 60 grep -q "listens" out
    wait_until 60 listens
    server=$(cat "/proc/$pid/task/$pid/children" 2> /dev/null)
    # shellcheck disable=SC2086 # a list of numbers
    kill -KILL $server
    wait $pid
    expect "worker: ends with its sshd" 0 "^137$" echo $?
    expect "worker: says so" 0 "error: sshd ended with status 137" cat out
    # A worker of root ends what came through its port, and nothing of other networks and users.
    if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null && unshare -n true 2> /dev/null; then
        good
        chown -R 0:0 keys
        chmod 755 "$work"
        sh "$docker/worker" --keys keys --allow-root --port "$port" --listen 127.0.0.1 > out 2>&1 &
        pid=$!
        wait_until 60 listens
        through=(env SSH_CONNECTION="192.0.2.1 40000 127.0.0.1 $port")
        "${through[@]}" sleep 1000 & guest=$!
        "${through[@]}" unshare -n sleep 1000 & contained=$!
        "${through[@]}" setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000 & another=$!
        wait_until 60 sh -c "for p in $guest $contained $another; do grep -q sleep /proc/\$p/comm || exit 1; done"
        kill -TERM $pid
        wait $pid
        expect "worker: a process of its sshd is ended" 1 "" kill -0 $guest
        expect "worker: one in another network is not" 0 "" kill -0 $contained
        expect "worker: one of another user is not" 0 "" kill -0 $another
        kill -KILL $contained $another
        wait $contained $another $guest 2> /dev/null
    else
        skip "not root, or no network of its own"
    fi
else
    skip "no sshd"
fi

# --- the images, Slurm and Kubernetes
images="Dockerfile Dockerfile.cuda"
last_user() { awk 'toupper($1) == "USER" { u = $2 } END { print u }' "$docker/$1"; }
last_stage() { awk 'toupper($1) == "FROM" { t = "" } { t = t $0 "\n" } END { printf "%s", t }' "$docker/$1"; }
compilers() { last_stage "$1" | grep -E 'gcc|g[+][+]|-dev|make |nvcc'; }
# A parser of its own: continued lines joined, comments left out; every instruction known, every base pinned or a stage above, every
# --from a stage above, every ARG that is used declared in its stage.
parsed() {
    awk '
        function bad(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; wrong = 1 }
        /^[ \t]*#/ || /^[ \t]*$/ { next }
        { line = line $0 }
        /\\$/ { sub(/\\$/, " ", line); next }
        {
            n = split(line, w, /[ \t]+/); k = w[1]
            if (k !~ /^(FROM|RUN|COPY|ARG|ENV|WORKDIR|USER|EXPOSE|CMD|ENTRYPOINT|LABEL|HEALTHCHECK)$/) bad("no instruction: " k)
            if (k == "FROM") {
                if (!(w[2] in stage) && w[2] !~ /^[a-z0-9\/.-]+:[A-Za-z0-9._-]+$/) bad("not pinned: " w[2])
                if (w[2] ~ /:latest$/) bad("not pinned: " w[2])
                if (n == 4 && w[3] == "AS") stage[w[4]] = 1; else if (n != 2) bad("FROM IMAGE [AS NAME]")
                split("", arg); n_from++
            }
            if (k == "RUN" && line ~ /[^|]\|[^|]/ && line !~ /pipefail/) bad("a pipe without pipefail")
            if (k == "ARG") { split(w[2], a, "="); arg[a[1]] = 1 }
            for (i = 2; i <= n; i++) if (w[i] ~ /^--from=/) { sub(/^--from=/, "", w[i]); if (!(w[i] in stage)) bad("no stage " w[i]) }
            if (k == "RUN") { text = line; while (match(text, /\$"?\{?[A-Z]+/)) {
                v = substr(text, RSTART, RLENGTH); gsub(/[^A-Z]/, "", v); if (!(v in arg)) bad("no ARG " v); text = substr(text, RSTART + RLENGTH) } }
            line = ""; count++
        }
        END { if (line != "") bad("ends in a continued line"); if (!wrong) printf "%d instructions in %d stages\n", count, n_from; exit wrong }' "$1"
}
for f in $images; do
    expect "$f: well formed" 0 "instructions in [2-9] stages" parsed "$docker/$f"
    expect "$f: not root by default" 0 "^worker$" last_user "$f"
    expect "$f: no compiler in the last stage" 1 "" compilers "$f"
    expect "$f: what it is not built from" 0 "" cmp "$docker/Dockerfile.dockerignore" "$docker/$f.dockerignore"
done
# The parser can fail.
while IFS='|' read -r text want; do
    printf '%b' "$text" > Bad
    expect "Dockerfile: $want" 1 "$want" parsed Bad
done << 'END'
FROM debian\nRUN true\n|not pinned: debian
FROM debian:latest\nRUN true\n|not pinned: debian:latest
FROM debian:12 AS a\nCOPY --from=b /x /y\n|no stage b
FROM debian:12\nRUM true\n|no instruction: RUM
FROM debian:12\nRUN true \\\n|ends in a continued line
FROM debian:12\nRUN echo "$JOBS"\n|no ARG JOBS
FROM debian:12\nRUN false \0174 true\n|a pipe without pipefail
END
copied() { # every path that the Dockerfile or the definition file copies from here is here
    {
        for f in $images; do awk 'toupper($1) == "COPY" && $2 !~ /^--from/ { for (i = 2; i < NF; i++) print $i }' "$docker/$f"; done
        awk '/^%/ { on = $0 == "%files" } on && /^ / { print $1 }' "$docker/run_dist.def"
    } | while read -r p; do if [ -e "$top/$p" ]; then echo "there: $p"; else echo "missing: $p"; fi; done
}
expect "what the images copy" 0 "there: docker/worker" copied
missing() { copied | grep missing; }
expect "nothing of it is missing" 1 "" missing
# make install calls docker/install, and finds the sources of the tools for vocabularies in configs/.
needed() { for p in docker/install configs; do grep -cE "(COPY |^ +|^!)$p( |$)" "$docker/$1"; done | tr '\n' ' '; }
for f in $images run_dist.def; do expect "$f: has what make install needs" 0 "^1 1 $" needed "$f"; done
for f in $images; do expect "$f: may copy it" 0 "^1 1 $" needed "$f.dockerignore"; done
expect "Dockerfile.cuda: built with the GPU backend" 0 "" grep -q "^RUN make CUDA=1 " "$docker/Dockerfile.cuda"
expect "Dockerfile.cuda: and that is seen" 0 "" grep -q '^RUN run_dist --version > .* && grep "backends: cpu, cuda" ' "$docker/Dockerfile.cuda"
cuda_releases() { grep -oE 'cuda[:-][0-9]+\.[0-9]+' "$docker/Dockerfile.cuda" | tr -cd '0-9.\n' | sort -u | wc -l; }
expect "Dockerfile.cuda: one release of CUDA" 0 "^1$" cuda_releases
packages() { grep -oE '[a-z0-9-]+' | grep -E '^(lib|openmpi)[a-z]*[0-9-]' | grep -vE '^libn|^libcu|^lib64$|^lib-' | sort -u; }
expect "packages of the images are the same" 0 "" diff <(last_stage Dockerfile | packages) <(awk '/^Stage: final/ { on = 1 } on' "$docker/run_dist.def" | packages)
expect "with CUDA too" 0 "" diff <(last_stage Dockerfile | packages) <(last_stage Dockerfile.cuda | packages)
expect "slurm.sbatch: without flags" 2 "no flags for run_dist" bash "$docker/slurm.sbatch"
# A Slurm of four lines: srun ends with what it is told, scontrol writes down what it is asked.
mkdir bin
# shellcheck disable=SC2016 # scripts
printf '#!/bin/sh\necho "srun $*" >> calls\nexit "$SRUN_STATUS"\n' > bin/srun
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" != show ] || { echo "   JobState=${STATE:-RUNNING} Reason=None"; exit; }\necho "scontrol $*" >> calls\n' > bin/scontrol
printf '#!/bin/sh\n' > bin/sleep
chmod 755 bin/*
batch() { PATH=$work/bin:$PATH SLURM_JOB_ID=7 SRUN_STATUS=$1 timeout 60 bash "$docker/slurm.sbatch" --config_file=c.json; }
for s in 0 2 75 137; do expect "slurm.sbatch: status $s" $s "run_dist ended with $s" batch $s; done
expect "slurm.sbatch: queued again after 75 alone" 0 "^1$" grep -c "^scontrol requeue 7$" calls
cancelled() { STATE=COMPLETING batch 75; }
expect "slurm.sbatch: cancelled" 75 "run_dist ended with 75" cancelled
expect "slurm.sbatch: is not queued again" 0 "^1$" grep -c "^scontrol requeue 7$" calls
expect "slurm.sbatch: flags are passed on" 0 "srun --mpi=pmix .*run_dist --config_file=c.json" cat calls
yaml=$(for p in "${RD_PYTHON:-python3}" python3; do "$p" -c 'import yaml' 2> /dev/null && echo "$p" && break; done)
if [ -n "$yaml" ]; then
    expect "mpijob.yaml" 0 "^ok" "$yaml" -c '
import sys, yaml
d = yaml.safe_load(open(sys.argv[1]))
s = d["spec"]
r = s["mpiReplicaSpecs"]
assert d["apiVersion"] == "kubeflow.org/v2beta1" and d["kind"] == "MPIJob" and s["mpiImplementation"] == "OpenMPI"
for name in "Launcher", "Worker":
    pod = r[name]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True, name
    assert all(isinstance(w, str) for c in pod["containers"] for w in c["command"]), name
line = r["Launcher"]["template"]["spec"]["containers"][0]["command"]
assert int(line[line.index("-np") + 1]) == s["slotsPerWorker"] * r["Worker"]["replicas"]
assert s["sshAuthMountPath"] in r["Worker"]["template"]["spec"]["containers"][0]["command"]
mounts = {m["name"] for m in r["Worker"]["template"]["spec"]["containers"][0]["volumeMounts"]}
assert mounts == {v["name"] for v in r["Worker"]["template"]["spec"]["volumes"]}
print("ok")' "$docker/mpijob.yaml"
else
    skip "no Python with yaml"
fi
summary
