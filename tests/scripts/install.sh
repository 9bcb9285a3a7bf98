#!/bin/bash
# install.sh -- make install writes the programs, configs, tools of clusters, completions, all pages in their folders and man
# pages. The installed program finds its experiments, links of the pages lead to files, and make uninstall leaves nothing.
# The Debian package and the archive hold the same; the package is installed and removed below a folder.
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
share=$work/usr/share

# The programs are as they are: -o keeps make from building them.
build=${PROG%/*}
run_make() {
    make -s --no-print-directory -C "$top" -o "$PROG" -o "$build/run_dist-vocab" -o "$build/run_dist-bpe" PROG="$PROG" \
        TEXT_TOOLS="$build/run_dist-vocab $build/run_dist-bpe" BUILD="$work/build" "$@"
}
mkdir -p "$work/build"

expect "install" 0 "" run_make DESTDIR="$work" PREFIX=/usr install
expect "the program runs" 0 "^usage: run_dist" "$work/usr/bin/run_dist" --help
printf 'b a\na\n' > "$work/text"
expect "vocabularies" 0 "" cmp <(printf 'a\t2\nb\t1\n') <("$work/usr/bin/run_dist-vocab" "$work/text")
expect "subwords" 0 "^usage: run_dist-bpe learn N FILE" "$work/usr/bin/run_dist-bpe" -h
expect "the script of clusters" 0 "cluster .OPTIONS. keys" "$work/usr/bin/run_dist-cluster" --help
expect "the worker of clusters" 0 "" test -x "$share/run_dist/docker/worker"
expect "it finds its experiments" 0 "g2p_cmudict.json" "$work/usr/bin/run_dist" --help=learning_rate
expect "in its own share" 0 "(in $share/run_dist/configs)" "$work/usr/bin/run_dist" --help=learning_rate
bits() { # files of configs/ whose execute bit differs
    (cd "$top" && find configs -type f ! -name '*.md' ! -name '*.c') | while read -r f; do
        [ ! -x "$top/$f" ] || [ -x "$share/run_dist/$f" ] || echo "$f"
    done
}
expect "fetchers can be executed" 0 "" test -z "$(bits)" -a -x "$share/run_dist/configs/get_en_de"
# shellcheck disable=SC2016 # the dollar signs are those of the scripts
parts() { # files that a fetcher starts, and that are not there
    grep -hoE '(\$here|\$\(dirname "\$0"\))"?/[a-zA-Z0-9_./-]*' "$share"/run_dist/configs/get_* |
        sed -E 's,^(\$here|\$\(dirname "\$0"\))"?/,,' | while read -r f; do
        [ -f "$share/run_dist/configs/$f" ] || echo "$f"
    done
}
expect "fetchers find what they start" 0 "" test -z "$(parts)" -a -f "$share/run_dist/configs/tools/novels_text.py"
for page in run_dist run_dist-vocab run_dist-bpe run_dist-cluster; do
    expect "the man page $page" 0 "^\.TH $page 1\|^\.TH ${page^^} 1" cat "$share/man/man1/$page.1"
done
expect "its exit codes" 0 "^\.SH EXIT STATUS" cat "$share/man/man1/run_dist.1"
expect "completion of bash" 0 "" bash -n "$share/bash-completion/completions/run_dist"
expect "completion of zsh" 0 "^#compdef run_dist" cat "$share/zsh/site-functions/_run_dist"
expect "completion of fish" 0 "^complete -c run_dist" cat "$share/fish/vendor_completions.d/run_dist.fish"
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
expect "uninstall" 0 "" run_make DESTDIR="$work" PREFIX=/usr uninstall
expect "nothing is left" 0 "" test -z "$(find "$work/usr" -type f)"

# The two packages, made of the programs that are there.
package() {
    MAKE="make -s --no-print-directory -o $PROG -o $build/run_dist-vocab -o $build/run_dist-bpe PROG=$PROG" VERSION=1.2.3 \
        SOURCE_DATE_EPOCH=1700000000 "$top/docker/package" "$1" "$2"
}
expect "tarball" 0 "run_dist-1.2.3-linux-" package tarball "$work/one"
mkdir "$work/moved here"
tar -C "$work/moved here" -xf "$work"/one/*.tar.gz
mv "$work/moved here"/run_dist-* "$work/moved here/any name"
expect "it runs where it is unpacked" 0 "(in $work/moved here/any name/share/run_dist/configs)" \
    "$work/moved here/any name/bin/run_dist" --help=learning_rate
if command -v dpkg-deb dpkg-shlibdeps > /dev/null && [ -e /var/lib/dpkg/status ]; then
    expect "package" 0 "run-dist_1.2.3_" package deb "$work/one"
    expect "its libraries are its dependencies" 0 "libopenmpi3.*libdnnl2\|libdnnl2.*libopenmpi3" dpkg-deb -f "$work"/one/*.deb Depends
    expect "package again" 0 "run-dist_1.2.3_" package deb "$work/two"
    expect "the same bytes" 0 "" cmp "$work"/one/*.deb "$work"/two/*.deb
    root=$work/root
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
    : > "$root/var/lib/dpkg/status"
    dpkg_in() { dpkg --root="$root" --force-not-root --force-depends --force-script-chrootless "$@"; }
    files() { find "$root" \( -path "*/var/lib/dpkg" -o -path "*/var/log" \) -prune -o ! -type d -print; }
    expect "the package is installed" 0 "" dpkg_in -i "$work"/one/*.deb
    expect "its program runs" 0 "(in $root/usr/share/run_dist/configs)" "$root/usr/bin/run_dist" --help=learning_rate
    expect "its checksums" 0 "" dpkg_in --verify run-dist
    expect "the package is removed" 0 "" dpkg_in --purge run-dist
    expect "without a trace" 0 "" test -z "$(files)"
    if command -v lintian > /dev/null; then
        expect "lintian finds nothing" 0 "" test -z "$(lintian --allow-root "$work"/one/*.deb 2>&1)"
    else
        skipped=$((skipped + 1))
    fi
else
    echo "skipped: no dpkg here, so no Debian package is made"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
