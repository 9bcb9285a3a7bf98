#!/bin/bash
# completion.sh -- tests the completion in real shells: bash, and zsh and fish where they are installed.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
[[ $PROG = /* ]] || PROG=$PWD/$PROG
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
mkdir logs
touch x.json y.txt logs/z.json
for shell in bash zsh fish; do "$PROG" --completion=$shell > "c.$shell" || echo "no completion of $shell"; done

in_bash() { # LINE: the words that bash offers behind the line
    bash --norc -c '
        . ./c.bash
        line=$1
        COMP_LINE=$line COMP_POINT=${#line}
        compopt() { :; }
        _run_dist
        printf "%s\n" "${COMPREPLY[@]}"' bash "$1"
}
in_fish() { fish --no-config -c 'source c.fish; complete -C $argv[1]' "$1" | cut -f 1; }
# zsh offers words to its line editor alone, so it runs in a terminal of its own. There compadd writes what it gets.
cat > init.zsh << 'END'
autoload -Uz compinit
compinit -D -u
. ./c.zsh
compadd() {
    local -a hits
    [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]] || { builtin compadd "$@"; return }
    builtin compadd -A hits "$@"
    print -rl -- $hits >> offered.words
    builtin compadd "$@"
}
offer() { zle complete-word; : > offered.done; zle kill-whole-line }
zle -N offer
bindkey '^X' offer
: > offered.ready
END
cat > outer.zsh << 'END'
zmodload zsh/zpty
await() { local k; for k in {1..400}; do [[ ! -e $1 ]] || return 0; zpty -r -t z got; sleep 0.05; done }
zpty z 'TERM=dumb HOME=$PWD zsh -f -i'
zpty -w z '. ./init.zsh'
await offered.ready
zpty -w -n z "$1"$'\030'
await offered.done
zpty -d z
END
in_zsh() {
    rm -f offered.*
    zsh -f ./outer.zsh "$1" > /dev/null 2>&1
    sort -u offered.words
}

offers() { # SHELL LINE WORD: does the shell offer exactly this word?
    "in_$1" "$2" > words.txt
    grep -qxF -- "$3" words.txt || { echo "$1 offers behind '$2':"; head -n 5 words.txt; return 1; }
}
refuses() { # SHELL LINE WORD
    "in_$1" "$2" > words.txt
    ! grep -qxF -- "$3" words.txt
}

expect "bash: a flag" 0 "" offers bash "run_dist --max" --max_steps=
expect "bash: only flags that begin so" 0 "" refuses bash "run_dist --max" --mode=
expect "bash: a mode" 0 "" offers bash "run_dist --mode=tra" train_eval
expect "bash: a mode as the next word" 0 "" offers bash "run_dist --mode inf" infer
expect "bash: a key" 0 "" offers bash "run_dist --set learning" learning_rate=
expect "bash: a key behind =" 0 "" offers bash "run_dist --set=learning" learning_rate=
expect "bash: a word of a key" 0 "" offers bash "run_dist --set optimizer=ad" adamw
expect "bash: a model" 0 "" offers bash "run_dist --set model=resnet5" resnet50
expect "bash: a truth value" 0 "" offers bash "run_dist --set shared_vocab=" true
expect "bash: a config" 0 "" offers bash "run_dist " x.json
expect "bash: no other file" 0 "" refuses bash "run_dist " y.txt
expect "bash: a config of a folder" 0 "" offers bash "run_dist logs/" logs/z.json
expect "bash: a folder" 0 "" offers bash "run_dist --logdir=lo" logs
expect "bash: a flag of bench mode" 0 "" offers bash "run_dist --mode=bench --num_b" --num_batches=
expect "bash: not in another mode" 0 "" refuses bash "run_dist --num_b" --num_batches=
expect "bash: kinds of lists" 0 "" offers bash "run_dist --list=" optimizers
expect "bash: words of help" 0 "" offers bash "run_dist --help=exit" exit-codes
expect "bash: the program is completed" 0 "complete -F _run_dist run_dist" bash --norc -c '. ./c.bash; complete -p run_dist'
if command -v shellcheck > /dev/null; then
    expect "bash: shellcheck" 0 "" shellcheck -s bash -e SC2034,SC2207 c.bash
fi
if command -v fish > /dev/null; then
    expect "fish: a flag" 0 "" offers fish "run_dist --max" --max_steps
    expect "fish: a mode" 0 "" offers fish "run_dist --mode=tra" --mode=train_eval
    expect "fish: a word of a key" 0 "" offers fish "run_dist --set optimizer=ad" optimizer=adamw
    expect "fish: a config" 0 "" offers fish "run_dist " x.json
    expect "fish: a flag of bench mode" 0 "" offers fish "run_dist --mode=bench --num_b" --num_batches
else
    skipped=$((skipped + 1))
    echo "skip: fish is not installed"
fi
if command -v zsh > /dev/null; then
    expect "zsh: a flag" 0 "" offers zsh "run_dist --max" --max_steps=
    expect "zsh: a mode" 0 "" offers zsh "run_dist --mode=tra" train_eval
    expect "zsh: a word of a key" 0 "" offers zsh "run_dist --set optimizer=ad" adamw
    expect "zsh: a config" 0 "" offers zsh "run_dist " x.json
    expect "zsh: no other file" 1 "" grep -qx y.txt words.txt
else
    skipped=$((skipped + 1))
    echo "skip: zsh is not installed"
fi
summary
