/* signals.c -- requests from outside. A handler only sets a flag; the ranks agree at the next step through the control
 * block of the training loop (train.c), so that all of them save and stop at the same step. */
#include "run_impl.h"

#include <signal.h>
#include <unistd.h>

/* The only mutable globals of the module: a handler has nothing else to write to. */
static volatile sig_atomic_t stop_signal, save_asked;

static void on_stop(int sig)
{
    if (stop_signal) _exit(128 + sig); /* asked twice: no waiting for the step to end */
    stop_signal = sig;
}

static void on_save(int sig)
{
    (void)sig;
    save_asked = 1;
}

void signals_start(void)
{
    struct sigaction sa = {.sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sa.sa_handler = on_stop;
    (void)sigaction(SIGTERM, &sa, NULL);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGUSR2, &sa, NULL);
    sa.sa_handler = on_save;
    (void)sigaction(SIGUSR1, &sa, NULL);
}

int signals_stop(void)
{
    return (int)stop_signal;
}

bool signals_take_save(void)
{
    const bool asked = save_asked != 0;
    save_asked = 0;
    return asked;
}
