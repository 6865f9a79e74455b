/*
 * Chat: each line of standard input is a message.
 *
 *     chat [model [template]]
 *
 * The default is the built-in story model, which has no chat template.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tabla.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tabla_last_error());
    return 1;
}

/* Appends {"role": role, "content": text} to a JSON array of messages. */
static char *append(char *messages, const char *role, const char *text) {
    size_t size = strlen(messages) + 6 * strlen(text) + strlen(role) + 40, at;
    const char *c;
    messages = realloc(messages, size);
    if (messages == NULL) {
        exit(1);
    }
    at = strlen(messages) - 1; /* overwrites the bracket */
    at += (size_t)sprintf(messages + at, "%s{\"role\": \"%s\", \"content\": \"", at > 1 ? ", " : "", role);
    for (c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == '"' || *c == '\\') {
            at += (size_t)sprintf(messages + at, "\\u%04x", (unsigned)*c);
        } else {
            messages[at++] = *c;
        }
    }
    strcpy(messages + at, "\"}]");
    return messages;
}

int main(int argc, char **argv) {
    TablaModel *model = tabla_load_model(argc > 1 ? argv[1] : NULL, 0);
    TablaSession *session = model != NULL ? tabla_session_new(model) : NULL;
    TablaChatOptions chat = {0};
    TablaGenerateOptions options;
    TablaPiece piece = {0};
    char *messages = strdup("[]"), line[4096], answer[65536];

    if (session == NULL) {
        return failed("cannot load the model");
    }
    chat.struct_size = sizeof chat;
    chat.chat_template = argc > 2 ? argv[2] : argc > 1 ? NULL : "vicuna";
    piece.struct_size = sizeof piece;
    if (tabla_generate_options_init(&options, sizeof options) != TABLA_OK) {
        return failed("cannot initialize the options");
    }
    options.max_tokens = 200;

    while (fputs("> ", stdout), fflush(stdout), fgets(line, sizeof line, stdin) != NULL) {
        size_t bytes = 0;
        line[strcspn(line, "\n")] = '\0';
        messages = append(messages, "user", line);

        /* Passes the whole conversation; the session only computes new tokens. */
        if (tabla_session_begin_chat(session, messages, &chat, &options) != TABLA_OK) {
            return failed("cannot start the answer");
        }
        for (;;) {
            if (tabla_session_next(session, &piece) != TABLA_OK) {
                return failed("the answer failed");
            }
            if (piece.finish != TABLA_FINISH_NONE) {
                break;
            }
            fwrite(piece.text, 1, piece.text_bytes, stdout);
            fflush(stdout);
            if (bytes + piece.text_bytes < sizeof answer) {
                memcpy(answer + bytes, piece.text, piece.text_bytes);
                bytes += piece.text_bytes;
            }
        }
        answer[bytes] = '\0';
        puts("");
        messages = append(messages, "assistant", answer);
    }
    puts("");
    free(messages);
    tabla_session_free(session);
    tabla_free_model(model);
    return 0;
}
