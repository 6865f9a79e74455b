/*
 * Tests of sessions.c: chats, parsers and forced tool calls.
 */
#ifndef CHATS_H
#define CHATS_H

#include "prompt.h"

#include <stdio.h>
#include <string.h>

static const char HELLO[] = "[{\"role\": \"user\", \"content\": \"Tell me of a cat.\"}]";
static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"c\": {\"enum\": [1]}}, \"required\": [\"c\"],"
    " \"additionalProperties\": false}}}]";
/* Reasoning and tool calls in the format of Qwen 3, which is detected from the text of the template. */
static const char THINKS[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                             "{% endfor %}<|im_start|>assistant\n{# <think> </think> <tool_call> #}";

static const char TWO_CALLS[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"c\": 1}}</tool_call>\n"
                                "<tool_call>{\"name\": \"f\", \"arguments\": {\"c\": 1}}</tool_call> a";

/* A log callback. */
static void keep_message(int32_t level, const char *message, void *user_data) {
    (void)level;
    snprintf(user_data, 256, "%s", message);
}

struct output {
    char text[512];
    size_t bytes;
};

static int32_t append(uint32_t token, const char *text, size_t bytes, void *user_data) {
    struct output *output = user_data;
    (void)token;
    CHECK(output->bytes + bytes < sizeof output->text);
    memcpy(output->text + output->bytes, text, bytes);
    output->bytes += bytes;
    output->text[output->bytes] = '\0';
    return 0;
}

static TablaChatOptions chat_options(const char *template) {
    TablaChatOptions chat;
    memset(&chat, 0, sizeof chat);
    chat.struct_size = sizeof chat;
    chat.chat_template = template;
    return chat;
}

/* The default session and others, and tabla_session_begin_chat, give the same answer. */
static void conversations(TablaModel *model) {
    TablaSession *own = tabla_model_session(model);
    TablaGenerateOptions options = greedy(6);
    TablaChatOptions chat = chat_options("vicuna");
    struct output one = {"", 0}, two = {"", 0}, three = {"", 0};
    TablaSession *session = tabla_session_new(model);
    TablaStats stats = {0};
    TablaPiece piece = {0};
    uint32_t tokens[64], there[64];
    size_t count = 0, kept = 0;
    stats.struct_size = sizeof stats;
    piece.struct_size = sizeof piece;

    CHECK(tabla_model_tokenize_chat(model, HELLO, &chat, tokens, 64, &count) == TABLA_OK);
    CHECK(tabla_session_chat(own, HELLO, &chat, &options, append, &one, &stats) == TABLA_OK);
    CHECK(stats.prompt_tokens == count && stats.tokens == 6 && one.bytes > 0);
    CHECK(tabla_session_chat(own, HELLO, &chat, &options, append, &two, NULL) == TABLA_OK);
    CHECK(strcmp(one.text, two.text) == 0);
    two.bytes = 0;
    CHECK(tabla_session_chat(session, HELLO, &chat, &options, append, &two, NULL) == TABLA_OK);
    CHECK(strcmp(one.text, two.text) == 0);
    CHECK(tabla_session_tokens(session, there, 64, &kept) == TABLA_OK);
    CHECK(kept == count + 6 && memcmp(tokens, there, count * sizeof *tokens) == 0);
    CHECK(tabla_session_begin_chat(session, HELLO, &chat, &options) == TABLA_OK);
    FAILS(tabla_session_chat(session, HELLO, &chat, &options, append, &two, NULL), TABLA_ERROR_STATE);
    while (tabla_session_next(session, &piece) == TABLA_OK && piece.finish == TABLA_FINISH_NONE) {
        CHECK(piece.top_logprobs == NULL && piece.top_logprobs_count == 0);
        append(piece.token, piece.text, piece.text_bytes, &three);
    }
    CHECK(piece.finish == TABLA_FINISH_LENGTH && strcmp(one.text, three.text) == 0);
    CHECK(tabla_session_stats(session, &stats) == TABLA_OK && stats.prompt_tokens == count);

    FAILS(tabla_session_chat(own, NULL, &chat, &options, append, &one, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_chat(own, "{}", &chat, &options, append, &one, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_chat(own, HELLO, NULL, &options, append, &one, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_begin_chat(session, "\xff", &chat, &options), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "messages is not UTF-8") != NULL);
    chat.chat_template = "{{ 'a b c d e ' * 40 }}";
    FAILS(tabla_session_chat(own, HELLO, &chat, &options, append, &one, NULL), TABLA_ERROR_TOO_LARGE);
    CHECK(tabla_session_free(session) == TABLA_OK);
    FAILS(tabla_session_begin_chat(session, HELLO, &chat, &options), TABLA_ERROR_HANDLE);
}

static int parses(TablaParser *parser, const char *text, const char *expected) {
    const char *parts = NULL;
    TablaStatus status = tabla_parser_push(parser, TABLA_NO_TOKEN, text, strlen(text), &parts);
    return status == TABLA_OK && strcmp(parts, expected) == 0;
}

/* Renders HELLO. */
static const char *rendered(TablaModel *model, const TablaChatOptions *chat) {
    static char text[2048];
    size_t bytes = 0;
    CHECK(tabla_model_apply_chat_template(model, HELLO, chat, text, sizeof text - 1, &bytes) == TABLA_OK);
    text[bytes] = '\0';
    return text;
}

/* Templates without tools get a system message, and those without efforts a log message. */
static void what_templates_lack(TablaModel *model) {
    TablaChatOptions chat = chat_options("vicuna");
    char log[256] = "";

    chat.tools = TOOLS;
    CHECK(strstr(rendered(model, &chat), "# Tools") != NULL);
    CHECK(strstr(rendered(model, &chat), "\"name\":\"f\"") != NULL);
    chat.tools = NULL;
    CHECK(strstr(rendered(model, &chat), "# Tools") == NULL);
    chat.chat_template = "{{ enable_thinking }} {{ reasoning_effort }}";
    chat.reasoning_effort = "high";
    CHECK(strcmp(rendered(model, &chat), "True high") == 0);
    chat.reasoning_effort = "none";
    CHECK(strcmp(rendered(model, &chat), "False ") == 0);
    chat.chat_template = "vicuna";
    chat.reasoning_effort = "high";
    CHECK(tabla_log_set_callback(TABLA_LOG_WARN, keep_message, log) == TABLA_OK);
    {
        size_t count = 0;
        CHECK(tabla_model_tokenize_chat(model, HELLO, &chat, NULL, 0, &count) == TABLA_OK);
    }
    CHECK(tabla_log_set_callback(TABLA_LOG_OFF, NULL, NULL) == TABLA_OK);
    CHECK(strstr(log, "reasoning_effort") != NULL);
    chat.reserved = 1;
    CHECK(tabla_parser_new(model, &chat, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
}

static void parsers(TablaModel *model) {
    TablaChatOptions chat = chat_options(THINKS);
    TablaParser *parser;
    const char *parts = NULL;

    chat.tools = TOOLS;
    parser = tabla_parser_new(model, &chat, NULL);
    CHECK(parser != NULL);
    CHECK(parses(parser, "<think>The sk", "[{\"reasoning_content\":\"The sk\"}]"));
    CHECK(parses(parser, "y.</think>\n\nI lo", "[{\"reasoning_content\":\"y.\"},{\"content\":\"I lo\"}]"));
    CHECK(parses(parser, "ok <tool_call>{\"name\": \"f\", ", "[{\"content\":\"ok\"}]"));
    CHECK(parses(parser, "\"arguments\": {\"c\": 1}}</tool_call>",
               "[{\"tool_call\":{\"index\":0,\"id\":null,\"name\":\"f\","
               "\"arguments\":\"{\\\"c\\\":1}\"}}]"));
    CHECK(parses(parser, " <tool", "[]"));
    FAILS(tabla_parser_push(parser, TABLA_NO_TOKEN, "\xff", 1, &parts), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_parser_push(parser, TABLA_NO_TOKEN, NULL, 1, &parts), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_parser_push(parser, TABLA_NO_TOKEN, "a", 1, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_parser_finish(parser, &parts) == TABLA_OK);
    CHECK(strstr(parts, "<tool") != NULL);
    FAILS(tabla_parser_finish(parser, &parts), TABLA_ERROR_STATE);
    FAILS(tabla_parser_push(parser, 5, "a", 1, &parts), TABLA_ERROR_STATE);
    CHECK(tabla_parser_free(parser) == TABLA_OK);
    FAILS(tabla_parser_free(parser), TABLA_ERROR_HANDLE);
    FAILS(tabla_parser_push(parser, 5, "a", 1, &parts), TABLA_ERROR_HANDLE);

    /* An answer with at most one tool call ends with it. */
    chat.no_parallel_tool_calls = 1;
    parser = tabla_parser_new(model, &chat, NULL);
    CHECK(parser != NULL);
    CHECK(tabla_parser_push(parser, TABLA_NO_TOKEN, TWO_CALLS, strlen(TWO_CALLS), &parts) == TABLA_OK);
    CHECK(strstr(parts, "\"index\":0") != NULL && strstr(parts, "\"index\":1") == NULL);
    CHECK(tabla_parser_finish(parser, &parts) == TABLA_OK && strcmp(parts, "[]") == 0);
    CHECK(tabla_parser_free(parser) == TABLA_OK);
    chat.no_parallel_tool_calls = 0;

    /* A prompt that ends inside the reasoning. */
    parser = tabla_parser_new(model, &chat, "<|im_start|>assistant\n<think>\n");
    CHECK(parses(parser, "Hm.", "[{\"reasoning_content\":\"Hm.\"}]"));
    CHECK(tabla_parser_free(parser) == TABLA_OK);
    chat.tools = "[";
    CHECK(tabla_parser_new(model, &chat, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_parser_new(NULL, NULL, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
}

/* The grammar forces a tool call. */
static void forced_calls(TablaModel *model) {
    TablaGenerateOptions options = greedy(UINT32_MAX);
    TablaChatOptions chat = chat_options(THINKS);
    TablaGrammar *grammar;
    TablaParser *parser;
    struct output answer = {"", 0};
    const char *parts = NULL;

    CHECK(tabla_grammar_new_tool_call(model, &chat, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    chat.tools = TOOLS;
    CHECK(tabla_grammar_new_tool_call(model, &chat, "clock") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "clock") != NULL);
    grammar = tabla_grammar_new_tool_call(model, &chat, "f");
    CHECK(grammar != NULL);
    options.grammar = grammar;
    CHECK(reset(model) == TABLA_OK);
    CHECK(tabla_generate(model, "Hi", &options, append, &answer, NULL) == TABLA_OK);
    parser = tabla_parser_new(model, &chat, NULL);
    CHECK(tabla_parser_push(parser, TABLA_NO_TOKEN, answer.text, answer.bytes, &parts) == TABLA_OK);
    CHECK(strstr(parts, "{\"tool_call\":{\"index\":0,\"id\":null,\"name\":\"f\"") != NULL);
    CHECK(reset(model) == TABLA_OK);
    CHECK(tabla_parser_free(parser) == TABLA_OK);
    CHECK(tabla_grammar_free(grammar) == TABLA_OK);
}

/* A stop token within the reasoning closes it, and the grammar applies to the answer. */
static void closed_reasoning(TablaModel *model) {
    static const char TEMPLATE[] = "{{ messages[0].content }}<think>\n{# </think> #}";
    TablaLogitBias bias = {0, 100};
    uint32_t stops[8];
    TablaGenerateOptions options = greedy(UINT32_MAX);
    TablaChatOptions chat = chat_options(TEMPLATE);
    TablaGrammar *grammar = tabla_grammar_new(model, TABLA_GRAMMAR_REGEX, "[xy]z");
    TablaBatch *batch = tabla_batch_new(model);
    TablaPiece piece = {0};
    struct output one = {"", 0}, two = {"", 0};
    uint32_t tokens[64];
    size_t count = 0, request = 0;
    piece.struct_size = sizeof piece;
    CHECK(tabla_model_stop_token_ids(model, stops, 8, &count) == TABLA_OK);
    bias.token = stops[0];
    options.ignore_eos = 0;
    options.grammar = grammar;
    options.logit_bias = &bias;
    options.logit_bias_count = 1;
    options.min_tokens = 2;
    CHECK(tabla_session_chat(tabla_model_session(model), HELLO, &chat, &options, append, &one, NULL) == TABLA_OK);
    CHECK(strstr(one.text, "\n</think>\n\n") > one.text && one.text[one.bytes - 1] == 'z');

    /* The same in a batch, whose prompt is tokens. */
    options.chat = &chat;
    CHECK(tabla_model_tokenize_chat(model, HELLO, &chat, tokens, 64, &count) == TABLA_OK);
    CHECK(tabla_batch_add(batch, tokens, count, &options, &request) == TABLA_OK);
    while (tabla_batch_next(batch, &piece) == TABLA_OK && piece.finish == TABLA_FINISH_NONE) {
        append(piece.token, piece.text, piece.text_bytes, &two);
    }
    CHECK(piece.finish == TABLA_FINISH_STOP && strcmp(one.text, two.text) == 0);

    /* A budget closes it, too. */
    options.logit_bias_count = 0;
    options.reasoning_budget = 0;
    two.bytes = 0;
    CHECK(tabla_session_chat(tabla_model_session(model), HELLO, NULL, &options, append, &two, NULL) != TABLA_OK);
    CHECK(tabla_session_chat(tabla_model_session(model), HELLO, &chat, &options, append, &two, NULL) == TABLA_OK);
    CHECK(strncmp(two.text, "\n</think>\n\n", 11) == 0 && two.text[two.bytes - 1] == 'z');
    CHECK(tabla_batch_free(batch) == TABLA_OK);
    CHECK(tabla_grammar_free(grammar) == TABLA_OK);
    CHECK(reset(model) == TABLA_OK);
}

#endif
