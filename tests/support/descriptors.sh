# shellcheck shell=bash
# descriptors.sh -- closes what the caller's shell or make holds open besides standard input, output and error. Tests that
# count open files, and the programs that they start, then do not depend on it.

close_inherited() {
    local fd key value flags
    for fd in "/proc/$BASHPID/fd/"*; do
        fd=${fd##*/} flags=
        [ "$fd" -gt 2 ] || continue
        while read -r key value; do [ "$key" != flags: ] || flags=$value; done 2> /dev/null < "/proc/$BASHPID/fdinfo/$fd"
        # Bash's own, such as this script, are not inherited: they have O_CLOEXEC.
        [ -z "$flags" ] || [ $((8#$flags & 8#2000000)) -ne 0 ] || eval "exec $fd>&-"
    done
}
