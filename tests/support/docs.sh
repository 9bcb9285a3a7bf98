#!/usr/bin/env bash
# docs.sh -- keeps every Markdown page true to the program, true to the tree, and easy to read.
# shellcheck disable=SC2016 # the backquotes are those of Markdown
#
#   tests/support/docs.sh write          writes every generated block into its page
#   tests/support/docs.sh generated      checks that every generated block is what the program prints
#   tests/support/docs.sh NAME           checks one block of the table below, such as keys
#   tests/support/docs.sh links          checks that every link leads to a file, and to a heading of it
#   tests/support/docs.sh sizes          checks that every page exists and keeps its limit
#   tests/support/docs.sh words          finds long lines, long sentences and banned words
#   tests/support/docs.sh run [PAGE...]  runs the commands below each <!-- run --> line, in a copy of the tree
#   tests/support/docs.sh installed [PAGE...]  the same in an empty folder, with an installation in PATH; blocks that
#                                        name files of the tree outside configs/ are left out
#   tests/support/docs.sh faq            checks that the program prints the messages that the pages explain
#   tests/support/docs.sh configs        checks that configs/README.md lists every config
#   tests/support/docs.sh foreign        checks the flags of other programs in configs/MIGRATING_TRANSLATION.md
#   tests/support/docs.sh example        trains the config that configs/README.md shows
#
# A check prints one line for each finding and exits with 1; without findings it prints nothing. `words` reads
# pages, the program's help, and comments and string literals of the sources.
#
# Environment: PROG (build/release/run_dist), RD_DOCS_RUN_LIMIT (seconds for a block of commands, 120),
# RD_TIMEOUT_SCALE (multiplies that).
set -u
cd "$(dirname "$0")/../.." || exit 2
PROG=${PROG:-$PWD/build/release/run_dist}
export LC_ALL=C.UTF-8
work=$(mktemp -d "${TMPDIR:-/tmp}/docs.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
findings=0
finding() { echo "$1"; findings=$((findings + 1)); }

# A generated block: its name, its page, the command that prints it. In a page it stands between the lines
# <!-- NAME:begin --> and <!-- NAME:end -->; a file that is no page holds nothing else.
blocks='
keys         configs/KEYS.md      "$PROG" --print_keys
flags        configs/KEYS.md      "$PROG" --print_topic=flags
bench-flags  configs/KEYS.md      "$PROG" --print_topic=bench
logdir       logs/README.md       "$PROG" --print_topic=logdir
modes        logs/README.md       "$PROG" --print_topic=modes
exit-codes   logs/README.md       "$PROG" --print_topic=exit-codes
signals      logs/README.md       "$PROG" --print_topic=signals
schema       configs/schema.json  "$PROG" --print_schema
'

# A page and the largest number of bytes, and of lines, that it may have.
limits='
README.md               8192 150
FAQ.md                 16384
CHANGELOG.md            3072
CONTRIBUTING.md         5120
configs/README.md       8192
configs/BENCH.md        3072
configs/DATA.md         4096
configs/DECODING.md     4096
configs/KEYS.md        65536
configs/TEXT.md         6144
configs/MIGRATING.md    6144
configs/MIGRATING_TRANSLATION.md 10240
configs/WRITING.md      4096
docker/README.md       14336
docker/LAUNCH.md        6144
docker/MESSAGES.md     15360
docker/MESSAGES_GPU.md  6144
logs/README.md          8192
logs/METRICS.md         6144
logs/CHECKPOINTS.md     6144
logs/FAULTS.md          6144
logs/RUNS.md            4096
logs/PREDICT.md         4096
logs/SWEEPS.md          5120
logs/EXPORT.md          5120
logs/REPORT.md          4096
logs/TENSORBOARD.md     3072
models/README.md        5120
models/ADDING.md        2560
models/LANGUAGE.md      6656
models/LORA.md          4096
models/WEIGHTS.md       5120
runner/README.md        9216
runner/BUILD.md         3072
runner/EXCHANGE.md      8192
runner/GPU.md           8192
runner/PARTS.md         2560
runner/SHARD.md         4096
tests/README.md         4096
tests/CHECKS.md         3072
tests/bench/README.md  11264
tests/bench/RESULTS.md 7168
tests/bench/SPEED.md   6144
tests/bench/SUMS.md     5120
tests/golden/README.md 11264
tests/gpu/RESULTS.md    4096
tests/ux/TABLES.md     10240
tests/gpu/attention.md  5120
tests/gpu/casts.md      3072
tests/gpu/floors.md    20480
'
line_limit=120     # characters of a line outside tables
sentence_limit=25  # words of a sentence outside tables and code

# The files of the tree, each ended by a NUL byte: new ones too, but nothing that a build or a run has written.
tree() {
    if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
        git ls-files -co --exclude-standard -z
    else
        find . -regextype egrep -not -regex '\./(build|test|data|logs/.*)/.*' -type f -printf '%P\0'
    fi | sort -zu | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done
}
pages() { tree | tr '\0' '\n' | grep '\.md$'; }

# Every line of the given pages as "page TAB line number TAB kind TAB text". The kinds are code, fence, blank,
# heading, table, item (first line of a list item), text (its other lines, and paragraphs), html, and generated
# (between the markers of a block).
lines() {
    local names
    names=$(awk 'NF { printf "%s ", $1 }' <<< "$blocks")
    LC_ALL=C awk -v names="$names banned-words" '
        BEGIN {
            OFS = "\t"
            n = split(names, name, " ")
            for (i = 1; i <= n; i++) generated["<!-- " name[i] ":begin -->"] = "<!-- " name[i] ":end -->"
        }
        FNR == 1 { fence = until = ""; comment = 0; before = "blank"; list = -1 }
        {
            sub(/\r$/, "")
            match($0, /^ */)
            indent = RLENGTH
            if (until != "") {
                kind = $0 == until ? "html" : "generated"
                if (kind == "html") until = ""
            } else if (fence != "") {
                kind = substr($0, indent + 1, 3) == fence ? "fence" : "code"
                if (kind == "fence") fence = ""
            } else if (comment) {
                kind = "html"
                if (/-->/) comment = 0
            } else if (/^[ \t]*$/) kind = "blank"
            else if (before ~ /^(blank|code|html|heading)$/ && (/^\t/ || indent >= (list < 0 ? 4 : list + 4)))
                kind = "code"
            else if (/^ *(```|~~~)/) { kind = "fence"; fence = substr($0, indent + 1, 3) }
            else if (/^ *<!--/) {
                kind = "html"
                if ($0 in generated) until = generated[$0]
                else if (!/-->/) comment = 1
            } else if (/^ *<[\/a-zA-Z]/) kind = "html"
            else if (/^#+ /) kind = "heading"
            else if (/^ *\|/) kind = "table"
            else if (match($0, /^ *([-*+]|[0-9]+[.)]) +/)) { kind = "item"; list = RLENGTH }
            else kind = "text"
            # A list ends at the first line at the margin that is no item and continues no paragraph.
            if (indent == 0 && kind !~ /^(blank|item|code|fence)$/ && (before == "blank" || kind != "text")) list = -1
            before = kind
            print FILENAME, FNR, kind, $0
        }' "$@"
}

all_lines() {
    local all
    mapfile -t all < <(pages)
    lines "${all[@]}" > "$work/lines"
}

# ---- generated blocks ----

# between NAME FILE: what stands between the markers; put NAME FILE TEXT: FILE with the file TEXT there.
between() {
    awk -v a="<!-- $1:begin -->" -v b="<!-- $1:end -->" '$0 == b { on = 0 } on { print } $0 == a { on = 1 }' "$2"
}
put() {
    awk -v a="<!-- $1:begin -->" -v b="<!-- $1:end -->" -v text="$3" '
        $0 == b { on = 0 }
        !on { print }
        $0 == a { on = 1; print ""; while ((getline line < text) > 0) print line; print "" }' "$2"
}
without_edges() { sed -e '/./,$!d' | sed -e ':a' -e '/^\n*$/{$d;N;ba' -e '}'; }

# each_block FUNCTION [NAME]: calls FUNCTION NAME PAGE for one block or for all, with the program's text in $work/text.
each_block() {
    local name page command any=0
    while read -r name page command; do
        [ -n "$name" ] || continue
        [ "${2:-$name}" = "$name" ] || continue
        any=1
        if ! eval "$command" > "$work/text" 2> "$work/err" || [ ! -s "$work/text" ]; then
            finding "$page: $command, which prints the block $name, failed: $(tail -n 1 "$work/err")"
            continue
        fi
        [ -f "$page" ] || { finding "$page: missing, but it holds the generated block $name"; continue; }
        case $page in
        *.md)
            if [ "$(grep -cxF -e "<!-- $name:begin -->" -e "<!-- $name:end -->" "$page")" -ne 2 ]; then
                finding "$page: the lines <!-- $name:begin --> and <!-- $name:end --> are not there once each"
                continue
            fi
            ;;
        esac
        "$1" "$name" "$page"
    done <<< "$blocks"
    [ $any -eq 1 ] || { echo "docs.sh: no generated block is named '$2'" >&2; exit 2; }
}
check_block() {
    case $2 in
    *.md) between "$1" "$2" | without_edges > "$work/found" && without_edges < "$work/text" > "$work/want" ;;
    *) cp "$2" "$work/found" && cp "$work/text" "$work/want" ;;
    esac
    diff -u --label "$2" --label "the program" "$work/found" "$work/want" > "$work/diff" && return
    finding "$2: the block $1 is not what the program prints; tests/support/docs.sh write updates it"
    head -n 20 "$work/diff"
}
write_block() {
    case $2 in
    *.md) put "$1" "$2" "$work/text" > "$work/page" ;;
    *) cp "$work/text" "$work/page" ;;
    esac
    cmp -s "$work/page" "$2" || cat "$work/page" > "$2"
}

# ---- pages ----

sizes() {
    local page bytes rows n
    while read -r page bytes rows; do
        [ -n "$page" ] || continue
        [ -f "$page" ] || { finding "$page: missing"; continue; }
        n=$(wc -c < "$page")
        [ "$n" -le "$bytes" ] || finding "$page: $n bytes, at most $bytes are allowed"
        n=$(wc -l < "$page")
        [ "$n" -le "${rows:-$n}" ] || finding "$page: $n lines, at most $rows are allowed"
    done <<< "$limits"
    for page in $(pages); do
        grep -q "^$page " <<< "$limits" || finding "$page: has no limit in tests/support/docs.sh"
    done
}

# Links are [text](target), ![text](target) and [name]: target. A heading's anchor is GitHub's: lower case, no
# punctuation, hyphens for blanks, and -1, -2, ... after a repeated one.
links() {
    local page line path anchor n=0
    all_lines
    LC_ALL=C awk -F '\t' '
        $3 == "heading" {
            text = tolower($4)
            sub(/^#+ +/, "", text)
            sub(/ +#* *$/, "", text)
            gsub(/\]\([^)]*\)/, "", text)
            gsub(/[^a-z0-9_ \200-\377-]/, "", text)
            gsub(/ /, "-", text)
            at = $1 "#" text
            print at (seen[at] ? "-" seen[at] : "")
            seen[at]++
        }' "$work/lines" > "$work/anchors"
    LC_ALL=C awk -F '\t' '
        function target(t,    path, anchor, part, n, i, k, out) {
            sub(/^</, "", t)
            sub(/>?( +".*")?$/, "", t)
            if (t ~ /^[a-z]+:/) return
            anchor = path = t
            if (!sub(/^[^#]*#/, "", anchor)) anchor = "-"
            sub(/#.*/, "", path)
            if (path == "") path = $1
            else if ($1 ~ /\//) { part[0] = $1; sub(/\/[^\/]*$/, "", part[0]); path = part[0] "/" path }
            n = split(path, part, "/")
            k = 0
            for (i = 1; i <= n; i++) {
                if (part[i] == "" || part[i] == ".") continue
                if (part[i] == ".." && k > 0 && out[k] != "..") k--
                else out[++k] = part[i]
            }
            path = k ? out[1] : "."
            for (i = 2; i <= k; i++) path = path "/" out[i]
            print $1, $2, path, anchor
        }
        $3 == "code" || $3 == "fence" || $3 == "html" { next }
        {
            text = $4
            gsub(/`[^`]*`/, "", text)
            if (match(text, /^\[[^]]*\]: */)) { target(substr(text, RLENGTH + 1)); next }
            while (match(text, /\]\([^)]*\)/)) {
                at = substr(text, RSTART + 2, RLENGTH - 3)
                text = substr(text, RSTART + RLENGTH)
                target(at)
            }
        }' "$work/lines" > "$work/links"
    while read -r page line path anchor; do
        n=$((n + 1))
        case $path in ..*) finding "$page:$line: the link leads out of the tree: $path"; continue ;; esac
        [ -e "$path" ] || { finding "$page:$line: link to $path, which does not exist"; continue; }
        case $path in
        *.md)
            [ "$anchor" = - ] || grep -qxF -- "$path#$anchor" "$work/anchors" ||
                finding "$page:$line: $path has no heading #$anchor"
            ;;
        esac
    done < "$work/links"
    [ $n -gt 5 ] || finding "only $n links found in all pages"
}

# ---- words ----

# Phrases of the list in CONTRIBUTING.md, "- `phrase`, `phrase` -> replacement", as "phrase TAB replacement".
banned() {
    [ -f CONTRIBUTING.md ] || return 0
    between banned-words CONTRIBUTING.md | awk '
        /^[-*] `/ {
            at = index($0, "->")
            left = at ? substr($0, 1, at - 1) : $0
            right = at ? substr($0, at + 2) : ""
            gsub(/^ +| +$/, "", right)
            while (match(left, /`[^`]+`/)) {
                print tolower(substr(left, RSTART + 1, RLENGTH - 2)) "\t" right
                left = substr(left, RSTART + RLENGTH)
            }
        }'
}

# Comments and string literals of C and CUDA sources as "file TAB line TAB text".
comments_and_strings() {
    find include runner models \( -name '*.[ch]' -o -name '*.cu' \) -print0 | sort -z | LC_ALL=C xargs -0 awk '
        FNR == 1 { comment = 0 }
        /^ *# *include/ { next }
        comment || /\/\*|\/\/|"/ {
            s = $0
            out = ""
            while (s != "") {
                if (comment) {
                    end = index(s, "*/")
                    comment = !end
                    out = out " " (end ? substr(s, 1, end - 1) : s)
                    s = end ? substr(s, end + 2) : ""
                } else if (match(s, /\/\*|\/\/|"|\047/)) {
                    sign = substr(s, RSTART, RLENGTH)
                    s = substr(s, RSTART + RLENGTH)
                    if (sign == "/*") comment = 1
                    else if (sign == "//") { out = out " " s; s = "" }
                    else {
                        if (sign == "\"") match(s, /^([^"\\]|\\.)*"/)
                        else match(s, /^([^\047\\]|\\.)*\047/)
                        if (RSTART == 0) break
                        if (sign == "\"") {
                            text = substr(s, 1, RLENGTH - 1)
                            gsub(/\\[nt]/, " ", text)
                            out = out " " text
                        }
                        s = substr(s, RLENGTH + 1)
                    }
                } else s = ""
            }
            sub(/^ *\**/, "", out)
            if (out ~ /[a-zA-Z]/) print FILENAME "\t" FNR "\t" out
        }'
}

# Reads "file TAB line TAB text" and prints each banned phrase, also if it begins on one line and ends on the next.
find_banned() {
    LC_ALL=C awk -F '\t' -v list="$work/banned" '
        BEGIN {
            while ((getline row < list) > 0) {
                split(row, part, "\t")
                phrase[++n] = part[1]
                better[n] = part[2]
                p = part[1]
                gsub(/[][.*+?(){}|^$\\\/]/, "\\\\&", p)
                pattern[n] = "(^|[^a-z0-9_])" p "([^a-z0-9_]|$)"
                several[n] = p ~ / /
                any = any (any == "" ? "" : "|") p
                if (several[n]) many = many (many == "" ? "" : "|") p
            }
            any = "(^|[^a-z0-9_])(" any ")([^a-z0-9_]|$)"
            many = "(^|[^a-z0-9_])(" many ")([^a-z0-9_]|$)"
        }
        {
            text = tolower($3)
            gsub(/[ \t]+/, " ", text)
            sub(/^ /, "", text)
            sub(/ $/, "", text)
            # A text of one word is a name, such as a key of JSON output.
            if (text ~ / / && text ~ any)
                for (i = 1; i <= n; i++)
                    if (text ~ pattern[i]) print $1 ":" $2 ": \047" phrase[i] "\047; better: " better[i]
            if ($1 == file && $2 == at + 1) {
                tail = length(last) > 60 ? substr(last, length(last) - 59) : last
                head = substr(text, 1, 60)
                both = tail " " head
                if (both ~ many) for (i = 1; i <= n; i++)
                    if (several[i] && both ~ pattern[i] && tail !~ pattern[i] && head !~ pattern[i])
                        print $1 ":" at ": \047" phrase[i] "\047, over two lines; better: " better[i]
            }
            file = $1; at = $2; last = text
        }'
}

words() {
    all_lines
    {
        LC_ALL=C awk -F '\t' -v most="$line_limit" '
            $3 != "table" && $3 != "generated" {
                text = $0
                sub(/^[^\t]*\t[^\t]*\t[^\t]*\t/, "", text)
                gsub(/[\200-\277]/, "", text)
                if (length(text) > most) print $1 ":" $2 ": " length(text) " characters, at most " most " are allowed"
            }' "$work/lines"
        # A paragraph or list item is split into sentences at "." "?" "!" before a blank. Code in backquotes is a word.
        LC_ALL=C awk -F '\t' -v most="$sentence_limit" '
            function close_sentence() {
                if (count > most)
                    print page ":" from ": a sentence of " count " words, at most " most " are allowed: " begin " ..."
                count = 0
                begin = ""
            }
            function flush(    n, i, token, code, at, len, k, mark, marks) {
                gsub(/\]\([^)]*\)/, "]", para)
                while (match(para, /``[^`]+``|`[^`]+`/)) {
                    at = RSTART; len = RLENGTH
                    code = substr(para, at, len)
                    marks = ""
                    k = split(code, mark, "\003")
                    for (i = 2; i <= k; i++) marks = marks " \003" (mark[i] + 0)
                    para = substr(para, 1, at - 1) "CODE" substr(para, at + len)
                    if (marks != "") para = substr(para, 1, at + 3) marks " " substr(para, at + 4)
                }
                n = split(para, token, /[ \t]+/)
                count = 0
                begin = ""
                for (i = 1; i <= n; i++) {
                    if (token[i] ~ /^\003/) { line = substr(token[i], 2) + 0; continue }
                    if (token[i] ~ /[A-Za-z0-9]/) {
                        if (!count) from = line
                        if (++count <= 5) begin = begin (begin == "" ? "" : " ") token[i]
                    }
                    if (token[i] ~ /^[("]*(e\.g|i\.e|cf|vs)\.$/) continue
                    if (token[i] ~ /[.?!][])"\047*_]*$/) close_sentence()
                }
                close_sentence()
                para = ""
            }
            $1 != page || ($3 != "text" && $3 != "item") || $3 == "item" { flush() }
            { page = $1 }
            $3 == "text" || $3 == "item" {
                text = $0
                sub(/^[^\t]*\t[^\t]*\t[^\t]*\t/, "", text)
                if ($3 == "item") sub(/^ *([-*+]|[0-9]+[.)]) +/, "", text)
                sub(/^[> ]+/, "", text)
                para = para " \003" $2 " " text
            }
            END { flush() }' "$work/lines"
        banned > "$work/banned"
        if [ -s "$work/banned" ]; then
            {
                LC_ALL=C awk -F '\t' '
                    $3 ~ /^(code|fence|html|generated|blank)$/ { next }
                    {
                        text = $0
                        sub(/^[^\t]*\t[^\t]*\t[^\t]*\t/, "", text)
                        gsub(/`[^`]*`/, "`", text)
                        gsub(/\]\([^)]*\)/, "]", text)
                        gsub(/\t/, " ", text)
                        print $1 "\t" $2 "\t" text
                    }' "$work/lines"
                if [ -x "$PROG" ]; then
                    for topic in "" =keys =bench =modes =exit-codes =signals =logdir; do
                        "$PROG" "--help$topic" | awk -v topic="$topic" '{ print "run_dist --help" topic "\t" NR "\t" $0 }'
                    done
                fi
                comments_and_strings
            } | find_banned
        else
            echo "CONTRIBUTING.md: no list of banned words between the lines <!-- banned-words:begin --> and :end"
        fi
    } > "$work/findings"
    sort -t : -k 1,1 -k 2,2n "$work/findings"
    findings=$(wc -l < "$work/findings")
}

# ---- commands ----

# The commands of a page run one block after the other in one copy of the tree, as a reader would try them after
# `make`. Each page gets its own copy; all share a copy of the build folder. Commands that would write outside the
# copy, or need a network, are refused.
run_pages() {
    local installed=$1
    shift
    local page block limit copy status all line command part
    local before='(^|[ ;&|(])'
    local outside='(^|[ =>"'\''(:])(/|~|\$HOME)|\.\./'
    local tools='(sudo|su|ssh|scp|curl|wget|git|apt|apt-get|pip|docker|podman|apptainer|kubectl|srun|sbatch) '
    local verbs='make +(.* )?(install|uninstall|deps|demo|distclean|clean|test|test-all|asan|fuzz|bench|gpu-.*)( |$)'
    local of_tree='(^|[^a-z_])(build|tests|docker|models|runner|test)/|(^|[^-a-z_])make |configs/(tools|get_|demo)'
    limit=$((${RD_DOCS_RUN_LIMIT:-120} * ${RD_TIMEOUT_SCALE:-1}))
    mkdir "$work/build" "$work/run"
    [ -x "$PROG" ] || { finding "$PROG: missing; build it first (make)"; return; }
    if [ -n "$installed" ]; then
        local tools_of=${PROG%/*}
        PROG=$PROG TEXT_TOOLS="$tools_of/run_dist-vocab $tools_of/run_dist-bpe" ROOT=$work/root DOC=$work/root/doc PAGES=README.md \
            docker/install || exit 2
    else
        # Without most test programs: half a gigabyte that no page starts.
        mkdir -p "$work/build/release/tests"
        for part in "${PROG%/*}"/* "${PROG%/*}/tests/support"; do
            [ ! -e "$part" ] || [ "$part" = "${PROG%/*}/tests" ] || cp -a "$part" "$work/build/release/${part#"${PROG%/*}/"}" || exit 2
        done
    fi
    if [ $# -eq 0 ]; then
        mapfile -t all < <(pages)
        set -- "${all[@]}"
    fi
    for page in "$@"; do
        rm -rf "$work/run" && mkdir "$work/run"
        # One file a block, named by the line of its mark. Empty lines in front make bash count as the page does.
        lines "$page" | awk -F '\t' -v dir="$work/run/" '
            function stop() { if (open && !any) print "" > file; open = 0 }
            $3 == "html" && $4 == "<!-- run -->" {
                stop()
                open = 1
                any = 0
                file = dir $2 ".sh"
                for (i = 0; i < $2; i++) print "" > file
                next
            }
            !open { next }
            $3 == "fence" && !any { print "" > file; next }
            $3 == "code" || $3 == "blank" {
                text = $0
                sub(/^[^\t]*\t[^\t]*\t[^\t]*\t/, "", text)
                print text > file
                if ($3 == "code") any = 1
                next
            }
            { stop() }'
        [ -n "$(ls "$work/run")" ] || continue
        copy=$work/copy
        mkdir "$copy" "$work/home" "$work/tmp"
        if [ -z "$installed" ]; then
            tree | tar -c --null --no-recursion -T - | tar -x -C "$copy" || exit 2
            ln -s "$work/build" "$copy/build"
        ln -sfn "$copy/configs" "$work/configs" # the program finds experiments by its own path
        fi
        for block in $(find "$work/run" -name '*.sh' -printf '%f\n' | sort -n); do
            if ! grep -q '[^[:space:]]' "$work/run/$block"; then
                finding "$page:${block%.sh}: no code block below <!-- run -->"
                continue
            fi
            [ -z "$installed" ] || ! grep -qE "$of_tree" "$work/run/$block" || continue
            sed -e 's/\(^\|[[:space:]]\)#.*//' -e 's|/dev/null||g' "$work/run/$block" |
                grep -nE -m 1 -- "$outside|$before$tools|$before$verbs" > "$work/refused"
            if [ -s "$work/refused" ]; then
                IFS=: read -r line command < "$work/refused"
                finding "$page:$line: leaves the copy of the tree: ${command#"${command%%[! ]*}"}"
                continue
            fi
            (
                cd "$copy" || exit 2
                export HOME=$work/home TMPDIR=$work/tmp PATH="$work/root/bin:$work/build/release:$PATH" BUILD=build/release
                # As in tests/run: ranks of one machine, also as root and in a container.
                export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
                export OMPI_MCA_plm_rsh_agent=sh
                unset PROG MPIRUN MAKEFLAGS MAKELEVEL
                {
                    printf 'set -eE -o pipefail; trap "echo \\"\$LINENO: exit status \$?: \$BASH_COMMAND\\" >&9" ERR'
                    cat "$work/run/$block"
                } > "$work/script"
                timeout -k 5 "$limit" bash "$work/script" > "$work/out" 2>&1 9> "$work/failed" < /dev/null
            )
            status=$?
            [ $status -ne 0 ] || continue
            if [ -s "$work/failed" ]; then finding "$page:$(head -n 1 "$work/failed")"
            elif [ $status -eq 124 ] || [ $status -eq 137 ]; then finding "$page:${block%.sh}: stopped after $limit s"
            else finding "$page:${block%.sh}: exit status $status"
            fi
            tail -n 6 "$work/out" | sed 's/^/    | /'
        done
        rm -rf "$copy" "${work:?}/home" "${work:?}/tmp"
    done
}

# ---- messages and configs ----

# Texts of the program as one line each: literals joined, formats kept. `"a %" PRId64 " b"` becomes `a %d b`.
literals() {
    find runner models -name '*.c' -exec cat {} + | tr '\n' ' ' |
        sed -e 's/\\"/\x01/g' -e 's/" *PRI[a-zA-Z0-9]* *"/d/g' -e 's/" *"//g' -e 's/\x01/"/g'
}

# A message in these pages is a heading in backquotes; "..." stands for what differs from run to run. Each piece
# must be in the sources.
faq() {
    local n least at page line piece
    literals > "$work/literals"
    while read -r page least; do
        [ -f "$page" ] || { finding "$page: missing"; continue; }
        n=0
        while IFS=: read -r at line; do
            n=$((n + 1))
            while IFS= read -r piece; do
                piece=$(sed -e 's/^ *//' -e 's/ *$//' <<< "$piece")
                [ ${#piece} -ge 6 ] || continue
                grep -qF -- "$piece" "$work/literals" ||
                    finding "$page:$at: the program does not print '$piece' ($line)"
            done <<< "${line//.../$'\n'}"
        done < <(awk '
            /^## / { on = $0 ~ /^## What run_dist says/ }
            on && /^### `.*`$/ { print NR ":" substr($0, 6, length($0) - 6) }' "$page")
        [ $n -ge "$least" ] || finding "$page: $n messages below '## What run_dist says', at least $least were expected"
    done <<< $'FAQ.md 10\ndocker/MESSAGES.md 1\ndocker/MESSAGES_GPU.md 1'
}

configs() {
    local f name
    for f in configs/*.json; do
        name=$(basename "$f")
        grep -qF "\`$name\`" configs/README.md || finding "configs/README.md: does not list $name"
    done
    for name in $(grep -o '^| `[^`]*\.json`' configs/README.md | tr -d '|` '); do
        [ -f "configs/$name" ] || finding "configs/README.md: lists $name, which does not exist"
    done
}

# A table of configs/MIGRATING_TRANSLATION.md has flags of another program on the left, and keys (key, key=value) or
# flags of this one on the right. Those on the right must exist and take the value. The program must explain each flag
# on the left by a name of the right, or by "leave it out". Code in parentheses belongs to the other program.
foreign() {
    local page=configs/MIGRATING_TRANSLATION.md line left right word name answer found n_left=0 n_right=0
    "$PROG" --print_keys | sed -n 's/^| `\([a-z_0-9]*\)` .*/\1/p' > "$work/keys"
    "$PROG" --print_topic=flags | sed -n 's/^| `--\([a-z_]*\).*/\1/p' > "$work/flags"
    echo '{"model": "transformer", "source_file": "a", "target_file": "b"}' > "$work/any.json"
    while IFS=$'\t' read -r line left right; do
        while [[ $right =~ \([^\)]*\) ]]; do right=${right/"${BASH_REMATCH[0]}"/}; done
        : > "$work/names"
        while IFS= read -r word; do
            name=${word%%=*}
            n_right=$((n_right + 1))
            case $word in
            mpirun\ *) ;;
            --*)
                grep -qx -- "${name#--}" "$work/flags" || finding "$page:$line: there is no flag $name"
                echo "$name" >> "$work/names"
                ;;
            *)
                grep -qx -- "$name" "$work/keys" || finding "$page:$line: there is no key '$name'"
                echo "$name" >> "$work/names"
                [ "$name" = "$word" ] ||
                    answer=$("$PROG" --config_file="$work/any.json" --set "$word" --allow_unknown_keys --print_config 2>&1) ||
                    finding "$page:$line: $word: ${answer##*error: }"
                ;;
            esac
        done < <(grep -o '`[^`]*`' <<< "$right" | tr -d '`')
        ! grep -q 'leave it out' <<< "$right" || echo 'leave it out' >> "$work/names"
        while IFS= read -r word; do
            n_left=$((n_left + 1))
            answer=$("$PROG" "$word" 1 2>&1)
            [ $? -eq 2 ] || finding "$page:$line: $word is not refused with exit code 2"
            found=
            while IFS= read -r name; do [[ $answer != *"$name"* ]] || found=yes; done < "$work/names"
            [ -n "$found" ] || finding "$page:$line: $word is explained otherwise: ${answer#*error: }"
        done < <(grep -o '`-[^`]*`' <<< "$left" | tr -d '`')
    done < <(awk -F ' *[|] *' '
        /^[|]/ && !table { table = $3 == "run_dist" ? 1 : 2; next }
        !/^[|]/ { table = 0 }
        table == 1 && $2 !~ /^-+$/ { print FNR "\t" $2 "\t" $3 }' "$page")
    if [ $n_left -lt 100 ] || [ $n_right -lt 100 ]; then
        finding "$page: only $n_left flags and $n_right names were found"
    fi
    sed -n '/^    {$/,/^    }$/p' "$page" > "$work/page.json"
    "$PROG" --config_file="$work/page.json" --print_config > "$work/out" 2>&1 || finding "$page: its config: $(tail -n 1 "$work/out")"
}

# The config that configs/README.md shows trains.
example() {
    local set side
    sed -n '/^    {$/,/^    }$/p' configs/README.md > "$work/example.json"
    cd "$work" || exit 2
    for set in train dev vocab; do mkdir -p test/toy_data/$set; done
    for side in source target; do
        printf 'a\nb\n' > test/toy_data/vocab/$side.txt
        for set in train dev; do printf 'a b\nb a a\n' > test/toy_data/$set/$side.txt; done
    done
    "$PROG" --config_file=example.json --logdir=log --max_steps=1 --set threads=1 > out 2>&1 && return
    finding "configs/README.md: the example config does not train:"
    tail -n 3 out
}

case ${1:-} in
links | sizes | words | faq | configs | foreign | example) "$1" ;;
run) shift; run_pages "" "$@" ;;
installed) shift; run_pages yes "$@" ;;
generated) each_block check_block ;;
write) each_block write_block ;;
'' | -*) sed -n '5,21s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
*) each_block check_block "$1" ;;
esac
[ $findings -eq 0 ]
