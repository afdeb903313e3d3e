/* First process of a node's namespaces, and of every pod's.
 *
 * It adopts what its descendants leave behind and reaps it; it ends when asked to, and the kernel
 * then kills all that lives in its process namespace. Static, so that it runs in any file system.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

static void reap(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction on_end = {.sa_handler = end};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGTERM, &on_end, NULL) != 0 || sigaction(SIGINT, &on_end, NULL) != 0 ||
        sigaction(SIGCHLD, &on_child, NULL) != 0) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
