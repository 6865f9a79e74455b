/* What Windows lacks: calls in the child of a fork, and signals of files that were truncated. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "prompt.h"

#ifdef _WIN32

#define FAULTS_ARE_CAUGHT TABLA_ERROR_UNSUPPORTED

static void forking(TablaModel *model) {
    CHECK(reset(model) == TABLA_OK);
}

#else

#define FAULTS_ARE_CAUGHT TABLA_OK

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Calls in the child of a fork fail at once. Returns the number of failed checks. */
static char child(TablaModel *model, TablaSession *session) {
    struct timespec start, end;
    uint32_t token = 77;
    char wrong = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    wrong += tabla_prefill(model, &token, 1) != TABLA_ERROR_FORKED;
    wrong += tabla_last_error()[0] == '\0';
    wrong += tabla_model_session(model) != NULL;
    wrong += tabla_session_step(session, NULL, &token) != TABLA_ERROR_FORKED || token != 77;
    wrong += tabla_model_load(NULL, NULL) != NULL;
    wrong += tabla_last_error_code() != TABLA_ERROR_FORKED;
    wrong += tabla_free_model(model) != TABLA_ERROR_FORKED;
    wrong += tabla_session_new(model) != NULL;
    wrong += tabla_last_error_code() != TABLA_ERROR_FORKED;
    clock_gettime(CLOCK_MONOTONIC, &end);
    wrong += end.tv_sec - start.tv_sec > 1;
    return wrong;
}

static void forking(TablaModel *model) {
    TablaSession *session = tabla_model_session(model);
    uint32_t tokens[64], token;
    size_t count = encode_prompt(model, tokens);
    char wrong = 77;
    int status = 0, ends[2];
    pid_t pid;

    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        wrong = child(model, session);
        status = write(ends[1], &wrong, 1) != 1;
        /* The child has no threads that reference the parent's memory, so valgrind would report leaks. */
        raise(SIGKILL);
    }
    CHECK(pid > 0);
    close(ends[1]);
    CHECK(read(ends[0], &wrong, 1) == 1 && wrong == 0);
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(tabla_session_step(session, NULL, &token) == TABLA_OK);
    CHECK(reset(model) == TABLA_OK);
}

#endif

#endif
