#!/bin/bash
# install.sh -- make install writes the program, the configs, all pages in their folders and a man page; the installed program
# finds its experiments, links of the pages lead to files, and make uninstall leaves nothing.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
share=$work/usr/share

# The programs are as they are: -o keeps make from building them.
vocab=${PROG%/*}/tests/support/make_vocab bpe=${PROG%/*}/tests/support/make_bpe
run_make() {
    make -s -C "$top" -o "$PROG" -o "$vocab" -o "$bpe" PROG="$PROG" TEXT_TOOLS="$vocab $bpe" BUILD="$work/build" DESTDIR="$work" \
        PREFIX=/usr "$@"
}
mkdir -p "$work/build"

expect "install" 0 "" run_make install
expect "the program runs" 0 "^usage: run_dist" "$work/usr/bin/run_dist" --help
printf 'b a\na\n' > "$work/text"
expect "vocabularies" 0 "" cmp <(printf 'a\t2\nb\t1\n') <("$work/usr/bin/run_dist_make_vocab" "$work/text")
expect "subwords" 0 "^usage: run_dist_make_bpe learn N FILE" "$work/usr/bin/run_dist_make_bpe" -h
expect "it finds its experiments" 0 "g2p_cmudict.json" "$work/usr/bin/run_dist" --help=learning_rate
expect "in its own share" 0 "(in $share/run_dist/configs)" "$work/usr/bin/run_dist" --help=learning_rate
expect "the man page" 0 "^\.SH EXIT STATUS" cat "$share/man/man1/run_dist.1"
expect "the schema" 0 "draft/2020-12" cat "$share/run_dist/configs/schema.json"
for page in README.md FAQ.md LICENSE CONTRIBUTING.md runner/BUILD.md configs/KEYS.md logs/README.md models/README.md docker/README.md runner/README.md; do
    expect "the page $page" 0 "" cmp "$top/$page" "$share/doc/run_dist/$page"
done
links() { # targets of links to pages, from the folder of each page
    (cd "$share/doc/run_dist" && find . -name '*.md' | while read -r f; do
        grep -o '](\([^)#:]*\.md\)' "$f" | sed 's/^](//' | while read -r to; do
            [ -f "$(dirname "$f")/$to" ] || echo "$f: $to is missing"
        done
    done)
}
expect "links between pages" 0 "" test -z "$(links)"
expect "uninstall" 0 "" run_make uninstall
expect "nothing is left" 0 "" test -z "$(find "$work/usr" -type f)"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
