#!/bin/sh
# registry.sh -- prints RD_ENTRY(id) for each definition RD_<MACRO>(id) or RD_<MACRO>_<FAMILY>(id, ...) that begins a line of the
# files, sorted.
#
#   runner/registry.sh MACRO FILE...
macro=$1
shift
[ $# -gt 0 ] && cat "$@" | tr '\n' '\r' | grep -oE "(^|$(printf '\r'))RD_${macro}(_[A-Z0-9_]+)?\\([[:space:]]*[a-z0-9_]+" |
    sed 's/.*[([:space:]]\([a-z0-9_]*\)$/RD_ENTRY(\1)/' | LC_ALL=C sort
exit 0
