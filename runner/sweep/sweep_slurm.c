/* sweep_slurm.c -- writes a sweep as a batch script of Slurm: a job array with one task for each
 * run. The script has the commands in full, so it needs neither the sweep nor its file. */
#include "sweep_impl.h"
#include "../doctor/doctor_impl.h"
#include "rd/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_quoted(rd_strbuf *b, const char *text)
{
    char *word[2] = {(char *)(uintptr_t)text, NULL};
    doc_line_text(word, 1, b);
}

/* Appends what a task does: starts the run, and queues it again when it has saved in time. */
static void add_task(rd_strbuf *b)
{
    rd_strbuf_puts(
        b, "# Slurm signals the ranks before the time limit. This shell must not end before them.\n"
           "trap : TERM USR2\n"
           "step=(srun \"--mpi=${RUN_DIST_MPI:-pmix}\" --kill-on-bad-exit=0)\n"
           "[ -z \"${SLURM_CPUS_PER_TASK:-}\" ] || "
           "step+=(\"--cpus-per-task=$SLURM_CPUS_PER_TASK\")\n"
           "\"${step[@]}\" \"${run[@]}\" &\n"
           "pid=$!\n"
           "while :; do # a signal interrupts wait\n"
           "    wait $pid\n"
           "    status=$?\n"
           "    kill -0 $pid 2> /dev/null || break\n"
           "done\n"
           "trap - TERM USR2\n"
           "# A task cancelled by scancel also ends with 75. It must not come back.\n"
           "state=$(scontrol show job \"$SLURM_JOB_ID\" 2> /dev/null |\n"
           "    sed -n 's/.*JobState=\\([A-Z_]*\\).*/\\1/p' | head -n 1)\n"
           "if [ \"$status\" -eq 75 ] && [ \"${state:-RUNNING}\" = RUNNING ]; then\n"
           "    scontrol requeue \"$SLURM_JOB_ID\" && sleep 60\n"
           "fi\n"
           "exit \"$status\"\n");
}

rd_code sweep_slurm_write(const sweep_common *c, const char *path, const sweep_list *l, int ranks,
                          int at_once, rd_status *st)
{
    rd_strbuf b = {0}, folder = {0};
    char limit[24] = "", here[4096];
    if (!getcwd(here, sizeof here))
        return rd_fail(st, RD_EENV, "cannot find the current folder: %s", strerror(errno));
    if (at_once > 0) (void)snprintf(limit, sizeof limit, "%%%d", at_once);
    add_quoted(&folder, c->cli->logdir);
    rd_strbuf_printf(&b,
                     "#!/bin/bash\n"
                     "# A sweep of run_dist: %d run%s, one for each task of the array.\n"
                     "# Set the resources of one run here: --time, --cpus-per-task, --gres, "
                     "--partition.\n"
                     "#SBATCH --job-name=sweep\n"
                     "#SBATCH --array=0-%d%s\n"
                     "#SBATCH --ntasks=%d\n"
                     "#SBATCH --time=04:00:00\n"
                     "#SBATCH --signal=USR2@120\n"
                     "#SBATCH --requeue\n"
                     "#SBATCH --open-mode=append\n"
                     "#SBATCH --output=sweep-%%A_%%a.out\n"
                     "set -u\n",
                     l->n, RD_S(l->n), l->n - 1, limit, ranks);
    rd_strbuf_puts(&b, "cd ");
    add_quoted(&b, here);
    rd_strbuf_puts(&b, " || exit 3\ncase $SLURM_ARRAY_TASK_ID in\n");
    for (int i = 0; i < l->n && st->code == RD_OK; i++) {
        sweep_words w = {0};
        sweep_command(c, &l->at[i], 0, &w);
        if (w.failed) rd_fail(st, RD_EENV, "out of memory for '%s'", path);
        rd_strbuf_printf(&b, "%d) run=(", i);
        if (!w.failed) doc_line_text(w.at, w.n, &b);
        rd_strbuf_puts(&b, ") ;;\n");
        sweep_words_release(&w);
    }
    rd_strbuf_puts(&b, "*)\n    echo \"the sweep has no task $SLURM_ARRAY_TASK_ID\" >&2\n"
                       "    exit 2\n    ;;\nesac\n");
    add_task(&b);
    rd_strbuf_printf(&b,
                     "# When the array has ended: run_dist --mode=runs --sort=best --logdir=%s\n",
                     rd_strbuf_str(&folder));
    if (b.failed) rd_fail(st, RD_EENV, "out of memory for '%s'", path);
    if (st->code == RD_OK) (void)rd_file_write_atomic(path, b.s, b.n, st);
    rd_strbuf_release(&b);
    rd_strbuf_release(&folder);
    return st->code;
}
