#!/bin/bash
# option_types.sh -- an option row whose field has another type does not compile, and the message says which type it has.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/option_types.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

# compiles NAME STATUS REGEX ROW: the row by itself, in a table of a struct with a field of each type.
compiles() {
    cat > row.c << END
#include "rd/options.h"
typedef enum mood { CALM, WILD } mood;
typedef enum sign { MINUS = -1, PLUS } sign;
typedef struct fields {
    bool b, has; int64_t i; double r; const char *s; rd_ints l; mood e; sign z;
    char *owned; int n; long double w; float f; unsigned char c;
} fields;
extern const char *const words[];
const char *const words[] = {"calm", "wild", NULL};
static const rd_option rows[] = {$4, RD_OPT_END};
const rd_option_group group = {"g", "g", rows, sizeof(fields)};
END
    # shellcheck disable=SC2046,SC2154 # words; CC is the environment's
    expect "$1" "$2" "$3" "${CC:-mpicc}" -std=c11 -Wall -Wextra -Wpedantic -Werror -D_GNU_SOURCE \
        -I"$top/include" $(pkg-config --cflags jansson) -c row.c -o row.o
}

while read -r row; do
    compiles "right: $row" 0 '' "$row"
done << 'END'
RD_OPT_BOOL(fields, k, b, "true", "h")
RD_OPT_INT(fields, k, i, NULL, 0, 9, "h")
RD_OPT_REAL(fields, k, r, "0.5", 0, 1, "h")
RD_OPT_STRING(fields, k, s, NULL, "h")
RD_OPT_INTS(fields, k, l, NULL, 0, 9, "h")
RD_OPT_NAME(fields, k, s, NULL, words, "h")
RD_OPT_ENUM(fields, k, e, "0", words, "h")
RD_OPT_ENUM(fields, k, z, NULL, words, "h")
RD_OPT_ENUM(fields, k, n, NULL, words, "h")
RD_OPT_INT(fields, k, i, NULL, 0, 9, "h", RD_GIVEN(fields, has), RD_REQUIRED(RD_MODE_TRAIN))
RD_OPT_BOOL(fields, k, b, NULL, "h", RD_WITHOUT_EFFECT)
END
while IFS='|' read -r row has; do
    compiles "wrong: $row" 1 "_Generic.* selector of type .*$has" "$row"
done << 'END'
RD_OPT_BOOL(fields, k, i, "true", "h")|int64_t
RD_OPT_BOOL(fields, k, c, "true", "h")|unsigned char
RD_OPT_INT(fields, k, r, NULL, 0, 9, "h")|double
RD_OPT_INT(fields, k, n, NULL, 0, 9, "h")|int
RD_OPT_INT(fields, k, e, NULL, 0, 9, "h")|mood
RD_OPT_REAL(fields, k, i, "0.5", 0, 1, "h")|int64_t
RD_OPT_REAL(fields, k, f, "0.5", 0, 1, "h")|float
RD_OPT_REAL(fields, k, w, "0.5", 0, 1, "h")|long double
RD_OPT_STRING(fields, k, owned, NULL, "h")|char
RD_OPT_STRING(fields, k, l, NULL, "h")|rd_ints
RD_OPT_INTS(fields, k, i, NULL, 0, 9, "h")|int64_t
RD_OPT_NAME(fields, k, e, NULL, words, "h")|mood
RD_OPT_ENUM(fields, k, s, NULL, words, "h")|char
RD_OPT_ENUM(fields, k, i, NULL, words, "h")|int64_t
RD_OPT_ENUM(fields, k, c, NULL, words, "h")|unsigned char
RD_OPT_INT(fields, k, i, NULL, 0, 9, "h", RD_GIVEN(fields, n))|int
END
compiles "a key without a field" 1 "no member named" 'RD_OPT_INT(fields, k, nothing, NULL, 0, 9, "h")'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
