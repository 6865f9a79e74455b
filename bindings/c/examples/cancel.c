/*
 * Generates a story until Ctrl-C or a time limit cancels it. The program continues after that.
 *
 *     cancel [seconds [model]]
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tabla.h>
#include <unistd.h>

static TablaSession *session;

/* A thread waits for the signal, because few functions may be called in a signal handler. */
static void *wait_for_signal(void *signals) {
    int number;
    sigwait(signals, &number);
    tabla_session_cancel(session);
    return NULL;
}

static int32_t show(uint32_t token, const char *text, size_t text_bytes, void *user_data) {
    (void)token;
    (void)user_data;
    fwrite(text, 1, text_bytes, stdout);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    TablaGenerateOptions options;
    TablaStats stats = {0};
    TablaModel *model;
    pthread_t thread;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before the library starts threads */

    model = tabla_load_model(argc > 2 ? argv[2] : NULL, 0);
    session = model != NULL ? tabla_session_new(model) : NULL;
    if (session == NULL) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    pthread_create(&thread, NULL, wait_for_signal, &signals);
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 10);

    tabla_generate_options_init(&options, sizeof options);
    options.ignore_eos = 1;
    options.context_shift = 1; /* the answer does not end by itself */
    stats.struct_size = sizeof stats;
    if (tabla_session_generate(session, "Once upon a time", &options, show, NULL, &stats) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    printf("\n%s after %u tokens\n", stats.finish == TABLA_FINISH_CANCELLED ? "cancelled" : "ended",
           (unsigned)stats.tokens);
    pthread_join(thread, NULL);
    tabla_session_free(session);
    return tabla_free_model(model);
}
