/* The first process of a pod's sandbox: waits, collects children that lost their parent, ends when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static void collect(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction ends = {.sa_handler = end};
    struct sigaction collects = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGTERM, &ends, NULL);
    sigaction(SIGINT, &ends, NULL);
    sigaction(SIGCHLD, &collects, NULL);
    for (;;) {
        pause();
    }
}
