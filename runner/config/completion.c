/* completion.c -- the completion of bash, zsh and fish, from the tables of flags and keys.
 *
 * Each script holds the same three tables: flags, keys, and the words that a flag or a key takes.
 * In bash the characters '=' and ':' end a word, so the script puts the pieces together again. */
#include "help_impl.h"

#include <string.h>

typedef struct completion {
    const rd_option_group *const *groups;
    int n;
    const rd_option_owner *owners;
    int n_owners;
    FILE *out;
} completion;

/* Calls f for each key once. */
static void each_key(const completion *c, void (*f)(const completion *c, const rd_option *o))
{
    for (int i = 0; i < c->n; i++)
        for (const rd_option *o = c->groups[i]->options; o->key; o++) {
            bool seen = false;
            for (int k = 0; k < i && !seen; k++)
                for (const rd_option *p = c->groups[k]->options; p->key; p++)
                    seen |= !strcmp(p->key, o->key);
            if (!seen) f(c, o);
        }
}

/* Prints the words that a key takes, separated by blanks. Returns how many. */
static int key_words(const completion *c, const rd_option *o)
{
    int n = 0;
    if (o->type == RD_BOOL) return fputs("true false", c->out), 2;
    for (int i = 0; o->choices && o->choices[i]; i++)
        fprintf(c->out, "%s%s", n++ ? " " : "", o->choices[i]);
    for (int i = 0; !n && i < c->n_owners; i++) {
        if (strcmp(c->owners[i].kind, o->key) != 0) continue;
        for (int k = i; k < c->n_owners; k++)
            if (!strcmp(c->owners[k].kind, o->key))
                fprintf(c->out, "%s%s", n++ ? " " : "", c->owners[k].name);
    }
    return n;
}

static bool has_words(const completion *c, const rd_option *o)
{
    bool owned = false;
    for (int i = 0; i < c->n_owners; i++) owned |= !strcmp(c->owners[i].kind, o->key);
    return o->type == RD_BOOL || o->choices || owned;
}

static void put_key(const completion *c, const rd_option *o)
{
    fprintf(c->out, " %s", o->key);
}

static void put_name(const completion *c, const char *name)
{
    fprintf(c->out, " %s", name);
}

/* Prints the words that a flag takes. Returns false if it takes any. */
static bool flag_words(const completion *c, const rd_flag *f)
{
    if (f->type == RD_FLAG_MODE)
        for (int i = 0; i < rd_n_mode_names; i++) put_name(c, rd_mode_names[i].name);
    else if (!strcmp(f->name, "list"))
        for (int i = 0; rd_list_words[i]; i++) put_name(c, rd_list_words[i]);
    else if (!strcmp(f->name, "completion"))
        fputs(" bash zsh fish", c->out);
    else if (!strcmp(f->name, "format"))
        fputs(" text csv json", c->out);
    else if (!strcmp(f->name, "output_format"))
        fputs(" text nbest json", c->out);
    else if (!strcmp(f->name, "new_config"))
        for (int i = 0; i < c->n_owners; i++) {
            if (!strcmp(c->owners[i].kind, "model")) put_name(c, c->owners[i].name);
        }
    else
        return false;
    return true;
}

/* The shell functions in common: words of a flag, words of a key. bash and zsh read the same. */
static void put_tables(const completion *c)
{
    fputs("_run_dist_keys='", c->out);
    each_key(c, put_key);
    fputs(" '\n_run_dist_flags='", c->out);
    for (int i = 0; i < rd_n_flags; i++)
        if (rd_flags[i].brief || rd_flags[i].whole)
            fprintf(c->out, " --%s%s", rd_flags[i].name, rd_flags[i].value ? "=" : "");
    fputs("'\n_run_dist_bench='", c->out);
    for (int i = 0; i < rd_bench_flag_count(); i++)
        fprintf(c->out, " --%s%s", rd_bench_flag_name(i),
                rd_bench_flag_type(i) == RD_BENCH_BOOL ? "" : "=");
    fputs("'\n_run_dist_of_flag() {\n    case $1 in\n", c->out);
    for (int i = 0; i < rd_n_flags; i++) {
        const rd_flag *f = &rd_flags[i];
        if (f->type == RD_FLAG_PATH) fprintf(c->out, "    --%s) echo ' /' ;;\n", f->name);
        if (f->type == RD_FLAG_MODE || !strcmp(f->name, "list") || !strcmp(f->name, "completion") ||
            !strcmp(f->name, "format") || !strcmp(f->name, "output_format") ||
            !strcmp(f->name, "new_config")) {
            fprintf(c->out, "    --%s) echo '", f->name);
            (void)flag_words(c, f);
            fputs("' ;;\n", c->out);
        }
    }
    fputs("    --help) echo \" keys bench", c->out);
    for (int i = 0; i < rd_n_topics; i++) put_name(c, rd_topics[i].name);
    fputs("$_run_dist_keys\" ;;\n    --model) echo '", c->out);
    for (int i = 0; i < c->n_owners; i++)
        if (!strcmp(c->owners[i].kind, "model")) put_name(c, c->owners[i].name);
    fputs("' ;;\n    esac\n}\n_run_dist_of_key() {\n    case $1 in\n", c->out);
}

static void put_case(const completion *c, const rd_option *o)
{
    if (o->path) fprintf(c->out, "    %s) echo ' /' ;;\n", o->key);
    if (!has_words(c, o)) return;
    fprintf(c->out, "    %s) echo ' ", o->key);
    (void)key_words(c, o);
    fputs("' ;;\n", c->out);
}

static const char bash_part[] =
    "    esac\n}\n"
    "_run_dist() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} word flag value words='' before cut w\n"
    "    COMPREPLY=()\n"
    "    word=${line##*[[:space:]]}\n"
    "    before=${line%\"$word\"}\n"
    "    before=${before%\"${before##*[![:space:]]}\"}\n"
    "    before=${before##*[[:space:]]}\n"
    "    flag=${word%%=*} value=${word#*=}\n"
    "    if [[ $word != --*=* && $before == --* && $_run_dist_flags\" \" == *\" $before=\"* ]]; "
    "then\n"
    "        flag=$before value=$word\n"
    "    elif [[ $word != --*=* ]]; then\n"
    "        flag='' value=$word\n"
    "    fi\n"
    "    case $flag in\n"
    "    '')\n"
    "        if [[ $word == -* ]]; then\n"
    "            words=$_run_dist_flags\n"
    "            [[ $line != *mode[=\\ ]bench* ]] || words+=$_run_dist_bench\n"
    "        else\n"
    "            words=' /json'\n"
    "        fi ;;\n"
    "    --set)\n"
    "        case $value in\n"
    "        *=*) words=$(_run_dist_of_key \"${value%%=*}\") value=${value#*=} ;;\n"
    "        *) for w in $_run_dist_keys; do words+=\" $w=\"; done ;;\n"
    "        esac ;;\n"
    "    --config_file) words=' /json' ;;\n"
    "    *) words=$(_run_dist_of_flag \"$flag\") ;;\n"
    "    esac\n"
    "    case $words in\n"
    "    ' /')\n"
    "        compopt -o filenames\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$value\") ;;\n"
    "    ' /json')\n"
    "        compopt -o filenames\n"
    "        mapfile -t COMPREPLY < <(compgen -d -- \"$value\"; compgen -f -X '!*.json' -- "
    "\"$value\") ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$value\") ;;\n"
    "    esac\n"
    "    # bash replaces only what stands behind the last '=' or ':'.\n"
    "    if [[ -z $flag && $word == *[=:]* ]]; then\n"
    "        cut=${word%\"${word##*[=:]}\"}\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"$cut\"}\")\n"
    "    fi\n"
    "    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
    "}\n"
    "complete -F _run_dist run_dist\n";

static const char zsh_part[] =
    "    esac\n}\n"
    "_run_dist() {\n"
    "    local word=$PREFIX flag value before='' offer='' w\n"
    "    local -a list\n"
    "    (( CURRENT < 2 )) || before=${words[CURRENT-1]}\n"
    "    flag=${word%%=*} value=${word#*=}\n"
    "    if [[ $word != --*=* && $before == --* && \"$_run_dist_flags \" == *\" $before=\"* ]]; "
    "then\n"
    "        flag=$before value=$word\n"
    "    elif [[ $word != --*=* ]]; then\n"
    "        flag='' value=$word\n"
    "    fi\n"
    "    case $flag in\n"
    "    '')\n"
    "        if [[ $word == -* ]]; then\n"
    "            offer=$_run_dist_flags\n"
    "            [[ $BUFFER != *mode[=\\ ]bench* ]] || offer+=$_run_dist_bench\n"
    "        else\n"
    "            offer=' /json'\n"
    "        fi ;;\n"
    "    --set)\n"
    "        case $value in\n"
    "        *=*) offer=$(_run_dist_of_key \"${value%%=*}\") value=${value#*=} ;;\n"
    "        *) for w in ${=_run_dist_keys}; do offer+=\" $w=\"; done ;;\n"
    "        esac ;;\n"
    "    --config_file) offer=' /json' ;;\n"
    "    *) offer=$(_run_dist_of_flag \"$flag\") ;;\n"
    "    esac\n"
    "    # What stands in front of the value stays as it is.\n"
    "    [[ -z $flag || $flag == $before ]] || compset -P '*='\n"
    "    [[ $flag != $before || $word != *=* ]] || compset -P '*='\n"
    "    list=(${=offer})\n"
    "    case $offer in\n"
    "    ' /') _files ;;\n"
    "    ' /json') _files -g '*.json' ;;\n"
    "    *)\n"
    "        compadd -S '' -- ${(M)list:#*=}\n"
    "        compadd -- ${list:#*=} ;;\n"
    "    esac\n"
    "}\n"
    "# Read by `source` or eval, or found in fpath under the name _run_dist.\n"
    "if [[ ${funcstack[1]:-} == _run_dist ]]; then\n"
    "    _run_dist \"$@\"\n"
    "else\n"
    "    compdef _run_dist run_dist\n"
    "fi\n";

static void fish_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', out);
        if (*text != '`') fputc(*text, out);
    }
    fputc('\'', out);
}

static void fish_key(const completion *c, const rd_option *o)
{
    fprintf(c->out, "    echo %s=\n", o->key);
    if (!has_words(c, o)) return;
    fputs("    for w in ", c->out);
    (void)key_words(c, o);
    fprintf(c->out, "; echo %s=$w; end\n", o->key);
}

static void put_fish(const completion *c)
{
    fputs("function __run_dist_set\n", c->out);
    each_key(c, fish_key);
    fputs("end\nfunction __run_dist_help\n    for w in keys bench", c->out);
    for (int i = 0; i < rd_n_topics; i++) put_name(c, rd_topics[i].name);
    each_key(c, put_key);
    fputs("; echo $w; end\nend\ncomplete -c run_dist -e\ncomplete -c run_dist -f\n"
          "complete -c run_dist -k -a '(__fish_complete_suffix .json)'\n",
          c->out);
    for (int i = 0; i < rd_n_flags; i++) {
        const rd_flag *f = &rd_flags[i];
        if (!f->brief && !f->whole) continue;
        fprintf(c->out, "complete -c run_dist -l %s", f->name);
        if (f->type == RD_FLAG_PATH)
            fputs(" -r -F", c->out);
        else if (f->type == RD_FLAG_SET)
            fputs(" -x -a '(__run_dist_set)'", c->out);
        else if (f->type == RD_FLAG_HELP)
            fputs(" -x -a '(__run_dist_help)'", c->out);
        else if (f->value) {
            fputs(" -x -a '", c->out);
            (void)flag_words(c, f);
            fputs("'", c->out);
        }
        fputs(" -d ", c->out);
        fish_text(c->out, f->brief ? f->brief : f->help);
        fputc('\n', c->out);
    }
    for (int i = 0; i < rd_bench_flag_count(); i++) {
        if (rd_flag_named(rd_bench_flag_name(i), strlen(rd_bench_flag_name(i)))) continue;
        fprintf(
            c->out,
            "complete -c run_dist -n 'string match -q \"*mode?bench*\" -- (commandline)' -l %s%s",
            rd_bench_flag_name(i), rd_bench_flag_type(i) == RD_BENCH_BOOL ? "" : " -x");
        if (!strcmp(rd_bench_flag_name(i), "model")) {
            fputs(" -a '", c->out);
            for (int k = 0; k < c->n_owners; k++)
                if (!strcmp(c->owners[k].kind, "model")) put_name(c, c->owners[k].name);
            fputs("'", c->out);
        }
        fputs(" -d ", c->out);
        fish_text(c->out, rd_bench_flag_help(i));
        fputc('\n', c->out);
    }
}

rd_code rd_help_completion(const char *shell, const rd_option_group *const *groups, int n,
                           const rd_option_owner *owners, int n_owners, FILE *out, rd_status *st)
{
    const completion c = {groups, n, owners, n_owners, out};
    char shown[RD_SHOWN_BYTES];
    const bool bash = !strcmp(shell, "bash"), zsh = !strcmp(shell, "zsh");
    if (!bash && !zsh && strcmp(shell, "fish") != 0)
        return rd_fail(st, RD_EUSAGE, "--completion=%s: the shells are bash, zsh and fish",
                       rd_shown(shell, shown));
    if (zsh) fputs("#compdef run_dist\n", out);
    fprintf(out, "# printed by run_dist --completion=%s\n", shell);
    if (!bash && !zsh) {
        put_fish(&c);
        return RD_OK;
    }
    put_tables(&c);
    each_key(&c, put_case);
    fputs(bash ? bash_part : zsh_part, out);
    return RD_OK;
}
