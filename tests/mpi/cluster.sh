#!/bin/bash
# cluster.sh -- tests docker/cluster, from keys to down.
#
# tests/support/fakecluster makes two hosts on this machine. The workers are plain processes instead of containers. They
# start, train the toy to the same losses as on one host, save and stop when a worker is asked to end, and leave nothing
# behind.
# timeout: 400
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
# shellcheck disable=SC2317 # called by expect
top=$(cd "$(dirname "$0")/../.." && pwd)
case ${BUILD:-} in *asan*) skip "the sanitizers' settings do not travel to the hosts; the scripts are the same in every build" ;; esac
made_hosts 2
cd "$work" || exit 2
printf '%s\n' "# two hosts" "node1 slots=2 user=root port=12346 login_port=12345" \
    "node2 slots=2 user=root port=12346 login_port=12345" > hosts
# shellcheck disable=SC2317
cluster() { # runs docker/cluster on node1
    timeout 100 "$nodes" exec node1 "$top/docker/cluster" --engine worker --hosts hosts --dir "$work/own" \
        --remote_dir "$work/remote" --program "$PROG" --kill_delay 5 "$@"
}
toy 64 16

expect "status before there is a key" 1 "down node1" cluster status
expect "distribute before there is a key" 2 "cluster keys" cluster distribute
expect "keys" 0 "" cluster keys
key=$(cat own/id.pub)
expect "keys again: kept" 0 "there is a key already" cluster keys
expect "the same key" 0 "$key" cat own/id.pub
mkdir -m 700 remote remote/node1
printf 'ssh-ed25519 AAAAsomebodyelse of=somebody' > remote/node1/authorized_keys # no newline at its end
expect "distribute" 0 "ok   node2: got the key" cluster distribute
expect "distribute again" 0 "ok   node1: has the key" cluster distribute
expect "the other key is whole" 0 "^1$" grep -cx "ssh-ed25519 AAAAsomebodyelse of=somebody" remote/node1/authorized_keys
expect "ours is there once" 0 "^1$" grep -c "^restrict,pty ssh-ed25519 .* run_dist_cluster$" remote/node1/authorized_keys
sed -i 1d remote/node1/authorized_keys
chmod 644 remote/node2/authorized_keys
expect "up: keys that others can read" 1 "FAIL node2: worker: error: .* has mode 644" cluster up
chmod 600 remote/node2/authorized_keys
expect "up" 0 "ok   node2: worker on port 12346" cluster up
expect "up again: nothing happens" 0 "ok   node1: worker on port 12346" cluster up
expect "one worker on each host" 0 "^2$" pgrep -fc "^sh .*/worker --keys $work/remote/"
expect "known_hosts has each host once" 0 "^2$" grep -c "^\[node[12]\]:12346 ssh-ed25519 " own/known_hosts
expect "status" 0 "up   node2 port 12346 slots 2" cluster status
expect "doctor" 0 "ok   all hosts: ranks exchange gradients" cluster doctor
expect "and shows where the ranks are" 0 "^ .*node2" cluster doctor

run=(run toy.json "--logdir=$work/two" --max_steps=4 --summary_frequency=1 --set deterministic=any --set micro_batches=4 --set batch_size=4)
expect "run" 0 "world: 4 ranks on 2 hosts" cluster "${run[@]}"
expect "the same on one host" 0 "" ranks 4 "$PROG" --config_file=toy.json "--logdir=$work/one" "${run[@]:3}"
expect "the same losses" 0 "4 values" close_curves loss 1e-6 4 "$work/two" "$work/one"
expect "a config that is wrong: its status" 2 "" cluster run toy.json "--logdir=$work/bad" --set batch_size=0
expect "more ranks than slots" 2 "the hosts file has 4 slots" cluster --np 5 run toy.json

# The worker of node2 is asked to end in the middle of a run. All ranks save, and the same command continues the run.
cluster run toy.json "--logdir=$work/asked" --max_steps=100000 --summary_frequency=10 > asked.log 2>&1 &
job=$!
wait_until 60 grep -q "^step 20" asked.log
kill -TERM "$(pgrep -f "^sh .*/worker --keys $work/remote/node2 ")"
wait $job
expect "a worker asked to end: its run ends with 75" 0 "^75$" echo $?
expect "the checkpoint is saved" 0 "model-" cat asked/checkpoint
refused() { cluster status | grep -q "down node2 .*refused"; }
wait_until 60 refused # its sshd may take a moment longer
expect "status tells the host that is down" 1 "down node2 port 12346: connection refused" cluster status
expect "doctor too" 1 "FAIL node2: port 12346 as root: connection refused" cluster doctor
expect "up brings it back" 0 "ok   node2" cluster up
sed -i 's/^\(\[node2\]:12346 [^ ]*\) .*/\1 AAAAother/' own/known_hosts
expect "another host key than the known one" 1 "FAIL node2: its host key is not the one" cluster up
expect "down" 0 "ok   node2: ended" cluster down
echo 'ssh-ed25519 AAAAsomebodyelse of=somebody' >> remote/node2/authorized_keys
expect "down again" 0 "ok   node1: no worker" cluster down --forget
expect "the folder of the worker is taken back" 1 "" test -e remote/node1
expect "but not with the key of another" 0 "^1$" grep -c "" remote/node2/authorized_keys
expect "known_hosts forgets both" 1 "" grep node own/known_hosts
expect "nothing is left" 0 "^0 are" gone 5 "worker --keys $work/|^$PROG .*--logdir=$work/|orted.*$work"
summary
