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
    if (!launched || srun) return rd_comm_self_new(out, st);
    return rd_comm_mpi_new(argc, argv, n, out, st);
}
