/* comm_start.c -- decides which communicator a process gets. The variables that a launcher sets in
 * the environment decide between "self" and "mpi". */
#include "comm_mpi.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Returns the positive number in an environment variable; else 0. */
static int env_int(const char *name)
{
    const char *s = getenv(name);
    const long n = s ? strtol(s, NULL, 10) : 0;
    return n > 0 && n < INT_MAX ? (int)n : 0;
}

/* Sets *launched to whether a launcher started this process, *n to the ranks that it counts (0:
 * unknown), and *srun to whether it is Slurm without a library that connects the ranks. */
static void find_launcher(bool *launched, int *n, bool *srun)
{
    const int ompi = env_int("OMPI_COMM_WORLD_SIZE"), pmi = env_int("PMI_SIZE");
    const bool pmix = getenv("PMIX_RANK") != NULL;
    /* A batch script has both variables, too, but is not a rank. A step in the script has
     * SLURM_STEP_ID. */
    const char *kind = getenv("ENVIRONMENT");
    const bool batch = kind && strcmp(kind, "BATCH") == 0 && !getenv("SLURM_STEP_ID");
    int slurm = getenv("SLURM_PROCID") && !batch ? env_int("SLURM_NTASKS") : 0;
    if (slurm && env_int("SLURM_STEP_NUM_TASKS")) slurm = env_int("SLURM_STEP_NUM_TASKS");
    *launched = ompi || pmi || pmix || slurm;
    *n = ompi ? ompi : pmi ? pmi : slurm;
    *srun = slurm && !ompi && !pmi && !pmix;
}

/* Launchers that start several processes and connect them in a way that MPI does not know, by the
 * variables that they set. torchrun and its relatives also set MASTER_ADDR; RANK and WORLD_SIZE
 * alone may be there for something else. */
static const struct {
    const char *name, *rank, *size, *local, *also;
} foreign[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"},
    {"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", NULL},
    {"mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", NULL},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", NULL}};

/* Returns the index in `foreign` of the launcher that started this process; -1: none did. */
static int find_foreign(void)
{
    for (int i = 0; i < (int)(sizeof foreign / sizeof *foreign); i++)
        if (getenv(foreign[i].rank) && env_int(foreign[i].size) > 1 &&
            (!foreign[i].also || getenv(foreign[i].also)))
            return i;
    return -1;
}

bool rd_comm_foreign_follower(void)
{
    bool launched, srun;
    int n;
    find_launcher(&launched, &n, &srun);
    const int i = launched ? -1 : find_foreign();
    return i >= 0 && env_int(foreign[i].local) > 0;
}

rd_code rd_comm_start(int *argc, char ***argv, rd_comm **out, rd_status *st)
{
    bool launched, srun;
    int n;
    *out = NULL;
    find_launcher(&launched, &n, &srun);
    if (srun && n > 1)
        return rd_fail(
            st, RD_EENV,
            "srun started %d ranks but nothing connects them; start with srun --mpi=pmix "
            "(srun --mpi=list shows what there is), or with mpirun",
            n);
    const int i = launched ? -1 : find_foreign();
    if (i >= 0)
        return rd_fail(
            st, RD_EENV,
            "%s started %d processes, which would each train alone: run_dist is started by mpirun "
            "(mpirun -np %d run_dist ...) or srun --mpi=pmix; for a single process, unset %s",
            foreign[i].name, env_int(foreign[i].size), env_int(foreign[i].size), foreign[i].size);
    if (!launched || srun) return rd_comm_self_new(out, st);
    return rd_comm_mpi_new(argc, argv, n, out, st);
}
