#!/usr/bin/env bash
# docs.sh -- keeps README.md, FAQ.md and configs/schema.json true to the program.
# shellcheck disable=SC2016 # the backquotes are those of Markdown
#
#   tests/support/docs.sh write      puts the program's own tables and schema into them
#   tests/support/docs.sh keys|flags|schema|faq|configs|example|links    checks one thing; says what is wrong and exits with 1
#
# Environment: PROG (build/release/run_dist).
set -u
cd "$(dirname "$0")/../.." || exit 2
PROG=${PROG:-$PWD/build/release/run_dist}
export LC_ALL=C.UTF-8
work=$(mktemp -d "${TMPDIR:-/tmp}/docs.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT

keys() { "$PROG" --print_keys; }
flags() { "$PROG" --help | awk '/^flags / { on = 1; next } !/^  --/ { on = 0 } on { print "  " $0 }'; }

# between NAME FILE: what stands between the markers; put NAME FILE TEXT: FILE with TEXT there.
between() { awk -v a="<!-- $1:begin -->" -v b="<!-- $1:end -->" '$0 == b { on = 0 } on { print } $0 == a { on = 1 }' "$2"; }
put() {
    awk -v a="<!-- $1:begin -->" -v b="<!-- $1:end -->" -v text="$3" '
        $0 == b { on = 0 }
        !on { print }
        $0 == a { on = 1; print ""; while ((getline line < text) > 0) print line; print "" }' "$2"
}
without_edges() { sed -e '/./,$!d' | sed -e ':a' -e '/^\n*$/{$d;N;ba' -e '}'; }

same() { # NAME WANTED FOUND
    [ -s "$2" ] || { echo "$1: the program printed nothing"; return 1; }
    diff -u "$3" "$2" > "$work/diff" && return 0
    echo "$1: not what the program prints; tests/support/docs.sh write brings it up to date"
    head -n 20 "$work/diff"
    return 1
}

# Texts of the program as one line each: literals joined, formats kept. `"a %" PRId64 " b"` becomes `a %d b`.
literals() {
    find runner models -name '*.c' -exec cat {} + | tr '\n' ' ' |
        sed -e 's/\\"/\x01/g' -e 's/" *PRI[a-zA-Z0-9]* *"/d/g' -e 's/" *"//g' -e 's/\x01/"/g'
}

# A message in the FAQ is a heading in backquotes; "..." stands for what differs from run to run. Each piece must be in the sources.
faq() {
    local bad=0 n=0 line piece
    literals > "$work/literals"
    while IFS= read -r line; do
        n=$((n + 1))
        while IFS= read -r piece; do
            piece=$(sed -e 's/^ *//' -e 's/ *$//' <<< "$piece")
            [ ${#piece} -ge 6 ] || continue
            grep -qF -- "$piece" "$work/literals" || { echo "FAQ.md: the program does not say '$piece' ($line)"; bad=1; }
        done <<< "${line//.../$'\n'}"
    done < <(sed -n '/^## What run_dist says/,/^## /s/^### `\(.*\)`$/\1/p' FAQ.md)
    [ $n -ge 10 ] || { echo "FAQ.md: $n messages of the program found, more were expected"; bad=1; }
    return $bad
}

configs() {
    local bad=0 f name
    for f in configs/*.json; do
        name=$(basename "$f")
        grep -qF "\`$name\`" configs/README.md || { echo "configs/README.md does not say what $name is"; bad=1; }
    done
    for name in $(grep -o '^| `[^`]*\.json`' configs/README.md | tr -d '|` '); do
        [ -f "configs/$name" ] || { echo "configs/README.md speaks of $name, which is not there"; bad=1; }
    done
    return $bad
}

# The config that the README shows trains, once the remarks on its right are gone.
example() {
    local set side
    sed -n '/^    {$/,/^    }$/p' README.md | sed -e 's/,   *[^ "].*$/,/' > "$work/example.json"
    cd "$work" || return 1
    for set in train dev vocab; do mkdir -p test/toy_data/$set; done
    for side in source target; do
        printf 'a\nb\n' > test/toy_data/vocab/$side.txt
        for set in train dev; do printf 'a b\nb a a\n' > test/toy_data/$set/$side.txt; done
    done
    "$PROG" --config_file=example.json --logdir=log --max_steps=1 --set threads=1 > out 2>&1 && return 0
    echo "README.md: the example config does not train:"
    tail -n 3 out
    return 1
}

# Links between pages: the file exists, and the heading too.
links() {
    local bad=0 page target file anchor n=0
    for page in README.md FAQ.md CHANGELOG.md configs/README.md logs/README.md; do
        while IFS= read -r target; do
            case $target in http*) continue ;; esac
            n=$((n + 1))
            file=${target%%#*} anchor=
            case $target in *\#*) anchor=${target#*#} ;; esac
            if [ -n "$file" ]; then file=$(dirname "$page")/$file; else file=$page; fi
            [ -e "$file" ] || { echo "$page: link to $target, which is not there"; bad=1; continue; }
            [ -z "$anchor" ] || sed -n 's/^##* //p' "$file" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-' | grep -qx -- "$anchor" ||
                { echo "$page: link to $target, but that page has no such heading"; bad=1; }
        done < <(grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//')
    done
    [ $n -gt 5 ] || { echo "only $n links found"; bad=1; }
    return $bad
}

case ${1:-} in
keys | flags)
    "$1" > "$work/want"
    between "$1" README.md | without_edges > "$work/found"
    without_edges < "$work/want" > "$work/want1"
    same "README.md, $1" "$work/want1" "$work/found"
    ;;
schema)
    "$PROG" --print_schema > "$work/want"
    same configs/schema.json "$work/want" configs/schema.json
    ;;
faq | configs | example | links) "$1" ;;
write)
    keys > "$work/keys" && flags > "$work/flags" && "$PROG" --print_schema > "$work/schema" || exit 1
    put keys README.md "$work/keys" > "$work/1" && put flags "$work/1" "$work/flags" > "$work/2" && cat "$work/2" > README.md &&
        cat "$work/schema" > configs/schema.json
    ;;
*) sed -n '5,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
