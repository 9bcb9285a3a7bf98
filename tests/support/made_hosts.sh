# shellcheck shell=bash
# made_hosts.sh -- simulates several hosts for a test. A test script sources it after toy.sh.
#
#   made_hosts N    makes node1 ... nodeN on this machine (tests/support/fakecluster), or skips the test
#                   and prints why. Sets work, a private folder of the test. Hosts and folder are removed
#                   when the test ends.
#   $nodes          path of fakecluster: "$nodes" exec node1 COMMAND...
nodes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/fakecluster
[[ $PROG = /* ]] || PROG=$PWD/$PROG

skip() { # WHY
    printf "skip: %s\n0 passed, 0 failed, 1 skipped\n" "$1"
    exit 0
}

# shellcheck disable=SC2317,SC2329 # called by the trap
unmake_hosts() {
    "$nodes" down > /dev/null 2>&1
    rm -rf "$work"
}

made_hosts() {
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    command -v sshd > /dev/null || [ -x /usr/sbin/sshd ] || skip "no sshd"
    work=$(mktemp -d) || exit 2
    trap unmake_hosts EXIT
    FAKECLUSTER_DIR=$work/nodes FAKECLUSTER_SUBNET=10.9$((RANDOM % 10)).$((RANDOM % 200))
    export FAKECLUSTER_DIR FAKECLUSTER_SUBNET
    # Only tests on one machine need these two: the hosts made here have ssh and their own slots.
    unset OMPI_MCA_plm_rsh_agent OMPI_MCA_rmaps_base_oversubscribe
    "$nodes" up "$1" > "$work/up.log" 2>&1 || skip "no $1 hosts on this machine: $(tail -n 1 "$work/up.log")"
}
