/*
 * Tests of sessions.c: classification with a cross-encoder of three labels.
 */
#ifndef CLASSIFICATION_H
#define CLASSIFICATION_H

#include "check.h"

#include <math.h>

static void classification(const char *path) {
    static const char *const texts[] = {"the sun", "the river ran on"};
    static const char *const pairs[] = {"the sun", "to the sea"};
    static const char *const missing[] = {"the sun", NULL};
    TablaLoadOptions loading = cpu_options();
    TablaClassifyOptions options;
    TablaModelInfo info;
    TablaModel *model = tabla_model_load(path, &loading);
    TablaModel *story = load();
    TablaSession *session = tabla_model_session(model);
    float scores[6], logits[6], single[6], alone[3];
    char name[16], text[500];
    size_t count = 0, sentinel = 4711, i;
    double sum = 0;

    CHECK(model != NULL);
    info.struct_size = sizeof info;
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    CHECK(info.labels == 3 && info.is_encoder && info.embedding_dim == 0);
    CHECK(tabla_model_label(model, 1, NULL, 0, &count) == TABLA_OK && count == strlen("entailment"));
    CHECK(tabla_model_label(model, 1, name, sizeof name, &count) == TABLA_OK);
    CHECK(memcmp(name, "entailment", count) == 0);
    FAILS(tabla_model_label(model, 1, name, 4, &sentinel), TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_model_label(model, 3, name, sizeof name, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_label(story, 0, name, sizeof name, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_label(model, 0, name, sizeof name, NULL), TABLA_ERROR_ARGUMENT);

    CHECK(tabla_session_classify(session, texts, pairs, 2, NULL, NULL, 0, &count) == TABLA_OK && count == 6);
    CHECK(tabla_session_classify(session, texts, pairs, 2, NULL, scores, 6, &count) == TABLA_OK);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.logits = 1;
    CHECK(tabla_session_classify(session, texts, pairs, 2, &options, logits, 6, &count) == TABLA_OK);
    for (i = 0; i < 3; i++) {
        sum += exp(logits[i]);
    }
    for (i = 0; i < 3; i++) {
        CHECK(fabs(exp(logits[i]) / sum - scores[i]) < 1e-5);
    }
    CHECK(tabla_session_classify(session, texts, NULL, 2, &options, single, 6, &count) == TABLA_OK);
    CHECK(memcmp(single, logits, sizeof single) != 0);
    CHECK(tabla_session_classify(session, texts + 1, pairs + 1, 1, &options, alone, 3, &count) == TABLA_OK);
    CHECK(memcmp(alone, logits + 3, sizeof alone) == 0);

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    {
        const char *const words[] = {text};
        FAILS(tabla_session_classify(session, texts, words, 1, NULL, scores, 6, &sentinel),
              TABLA_ERROR_TOO_LARGE);
        options.truncate = 1;
        CHECK(tabla_session_classify(session, texts, words, 1, &options, scores, 6, &count) == TABLA_OK);
        CHECK(count == 3);
        FAILS(tabla_session_classify(session, words, texts, 1, &options, scores, 6, &sentinel),
              TABLA_ERROR_TOO_LARGE);
    }
    FAILS(tabla_session_classify(session, texts, missing, 2, NULL, scores, 6, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_classify(session, NULL, NULL, 2, NULL, scores, 6, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_classify(session, texts, NULL, 2, NULL, scores, 5, &sentinel), TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_session_classify(session, texts, NULL, 2, NULL, scores, 6, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_classify(tabla_model_session(story), texts, NULL, 2, NULL, scores, 6, &sentinel),
          TABLA_ERROR_STATE);
    /* Reranking requires one label. */
    FAILS(tabla_session_rerank(session, "q", NULL, texts, 2, scores, 6, &sentinel), TABLA_ERROR_UNSUPPORTED);
    CHECK(sentinel == 4711);
    CHECK(tabla_free_model(story) == TABLA_OK);
    CHECK(tabla_free_model(model) == TABLA_OK);
}

#endif
