/*
 * Tests of transcriptions with a small model whose windows have 1.5 seconds and 3 segments. Prints the
 * number of passed checks, and a line for each failed one.
 *
 *     transcribe <model> <WAV file of 2 seconds> <WAV file of 31 seconds>
 */
#define _POSIX_C_SOURCE 200809L

#include "check.h"

#include <math.h>
#include <stddef.h>

enum { SEGMENTS = 3, SAMPLES = 16000 };

static float samples[2 * SAMPLES];

static TablaTranscribeOptions greedy_options(void) {
    TablaTranscribeOptions options;
    CHECK(tabla_transcribe_options_init(&options, sizeof options) == TABLA_OK);
    options.beam_size = 1;
    options.temperature_increment = 0;
    options.condition_on_previous_text = 0;
    return options;
}

/* Offsets with 64-bit pointers, which must not change without TABLA_ABI_VERSION. */
static void layout(void) {
    if (sizeof(void *) != 8) {
        return;
    }
    CHECK(sizeof(TablaTranscribeOptions) == 144);
    CHECK(offsetof(TablaTranscribeOptions, seed) == 40);
    CHECK(offsetof(TablaTranscribeOptions, silence_level) == 112);
    CHECK(offsetof(TablaTranscribeOptions, language) == 120);
    CHECK(offsetof(TablaTranscribeOptions, vad_model) == 136);
    CHECK(sizeof(TablaWord) == 40);
    CHECK(offsetof(TablaWord, start) == 16);
    CHECK(sizeof(TablaSegment) == 112);
    CHECK(offsetof(TablaSegment, text) == 24);
    CHECK(offsetof(TablaSegment, words) == 56);
    CHECK(offsetof(TablaSegment, seek) == 104);
    CHECK(sizeof(TablaTranscriptionInfo) == 40);
    CHECK(offsetof(TablaTranscriptionInfo, language) == 24);
}

static void defaults(void) {
    TablaTranscribeOptions options;
    uint64_t start;
    memset(&options, 0x55, sizeof options);
    CHECK(tabla_transcribe_options_init(&options, sizeof options) == TABLA_OK);
    CHECK(options.struct_size == sizeof options && options.task == TABLA_TASK_TRANSCRIBE);
    CHECK(options.sample_rate == 16000 && options.channels == 1);
    CHECK(options.beam_size == 5 && options.best_of == 5 && options.timestamps == 1);
    CHECK(options.word_timestamps == 0 && options.condition_on_previous_text == 1);
    CHECK(options.temperature == 0 && options.temperature_increment == 0.2);
    CHECK(options.length_penalty == -1 && options.silence_level == -60);
    CHECK(options.language == NULL && options.initial_prompt == NULL && options.vad_model == NULL);
    FAILS(tabla_transcribe_options_init(NULL, sizeof options), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcribe_options_init(&options, 3), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_transcribe_options_init((TablaTranscribeOptions *)(void *)&start, sizeof start) == TABLA_OK);
    memcpy(&options, &start, sizeof start);
    CHECK(options.struct_size == sizeof start);
}

struct received {
    unsigned count;
    int is_correct;
    double duration;
};

static int32_t receive(const TablaSegment *segment, void *user_data) {
    struct received *received = user_data;
    /* Times are within the recording. */
    double start = fmin(0.5 * received->count, received->duration);
    received->is_correct &= segment->struct_size == sizeof *segment;
    received->is_correct &= segment->id == received->count;
    received->is_correct &= segment->start == start && segment->end == fmin(start + 0.5, received->duration);
    received->is_correct &= segment->text_bytes == 5 && strcmp(segment->text, " w300") == 0;
    received->is_correct &= segment->tokens_count == 3 && segment->tokens[1] == 300;
    received->is_correct &= segment->words == NULL && segment->words_count == 0;
    received->count++;
    return 0;
}

/* A call on the session of the transcription, which ends at the first segment. */
static int32_t call_again(const TablaSegment *segment, void *user_data) {
    CHECK(segment->id == 0);
    FAILS(tabla_transcribe(user_data, samples, SAMPLES, NULL, receive, NULL), TABLA_ERROR_REENTRANT);
    return 1;
}

/* Frees the model at the first segment; the handle is invalid at the next ones. */
static int32_t free_model(const TablaSegment *segment, void *user_data) {
    CHECK(tabla_free_model(user_data) == (segment->id == 0 ? TABLA_OK : TABLA_ERROR_HANDLE));
    return 0;
}

static void callbacks(TablaModel *model, const char *wav) {
    TablaTranscribeOptions options = greedy_options();
    struct received received = {0};

    received.is_correct = 1;
    received.duration = 1;
    CHECK(tabla_transcribe(model, samples, SAMPLES, &options, receive, &received) == TABLA_OK);
    CHECK(received.count == SEGMENTS && received.is_correct);
    received.count = 0;
    received.duration = 2;
    CHECK(tabla_transcribe_file(model, wav, &options, receive, &received) == TABLA_OK);
    CHECK(received.count == 2 * SEGMENTS && received.is_correct);
    CHECK(tabla_transcribe(model, samples, SAMPLES, &options, call_again, model) == TABLA_OK);
    received.count = 0;
    CHECK(tabla_transcribe(model, NULL, 0, &options, receive, &received) == TABLA_OK);
    CHECK(received.count == 0);

    FAILS(tabla_transcribe(model, samples, SAMPLES, &options, NULL, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcribe(model, NULL, 1, &options, receive, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcribe_file(model, NULL, &options, receive, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcribe_file(model, "no such file", &options, receive, NULL), TABLA_ERROR_IO);
    samples[7] = NAN;
    CHECK(tabla_transcribe(model, samples, SAMPLES, &options, receive, NULL) != TABLA_OK);
    samples[7] = 0;
}

static void invalid_options(TablaModel *model, const char *wav) {
    TablaTranscribeOptions options = greedy_options();
    options.beam_size = 9;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "beam_size") != NULL);
    options = greedy_options();
    options.task = 2;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options.task = TABLA_TASK_TRANSLATE;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() != TABLA_OK);
    options = greedy_options();
    options.sample_rate = 7;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options = greedy_options();
    options.reserved = 1;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options = greedy_options();
    options.vad_model = "no such file";
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(strstr(tabla_last_error(), "vad_model: no such file: ") != NULL);
    options.vad_model = wav;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_UNSUPPORTED);
    CHECK(strstr(tabla_last_error(), wav) != NULL);
    options.vad_model = "";
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options = greedy_options();
    options.struct_size = 0;
    CHECK(tabla_transcription_new(model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_transcription_open(model, NULL, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_transcription_open_memory(model, "text", 4, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_UNSUPPORTED);
    CHECK(tabla_transcription_open_memory(model, NULL, 4, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
}

/* Reads segments until there is none. */
static unsigned read_segments(TablaTranscription *transcription) {
    TablaSegment segment;
    unsigned count = 0;
    int32_t found = 77;
    memset(&segment, 0x55, sizeof segment);
    segment.struct_size = sizeof segment;
    for (;;) {
        CHECK(tabla_transcription_next(transcription, &segment, &found) == TABLA_OK);
        if (found != 1) {
            break;
        }
        CHECK(strcmp(segment.text, " w300") == 0);
        count++;
    }
    CHECK(found == 0);
    return count;
}

static void pulled(TablaModel *model, const char *wav) {
    TablaTranscribeOptions options = greedy_options();
    TablaTranscription *transcription;
    TablaTranscriptionInfo info;
    TablaSegment segment;
    char text[4096];
    size_t count = 0, i;
    int32_t found = 0;

    options.channels = 2;
    options.sample_rate = 32000;
    transcription = tabla_transcription_new(model, &options);
    CHECK(transcription != NULL);
    CHECK(read_segments(transcription) == 0);
    for (i = 0; i < 4; i++) {
        CHECK(tabla_transcription_push(transcription, samples, SAMPLES) == TABLA_OK);
    }
    FAILS(tabla_transcription_push(transcription, samples, 3), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcription_push(transcription, NULL, 2), TABLA_ERROR_ARGUMENT);
    CHECK(read_segments(transcription) == 0);
    CHECK(tabla_transcription_finish(transcription) == TABLA_OK);
    CHECK(read_segments(transcription) == SEGMENTS && read_segments(transcription) == 0);
    FAILS(tabla_transcription_push(transcription, samples, 2), TABLA_ERROR_STATE);
    info.struct_size = sizeof info;
    CHECK(tabla_transcription_info(transcription, &info) == TABLA_OK);
    CHECK(info.segments == SEGMENTS && info.duration == 1 && strcmp(info.language, "en") == 0);
    CHECK(strcmp(info.language_name, "english") == 0 && info.struct_size == sizeof info);
    CHECK(tabla_transcription_write(transcription, "srt", NULL, 0, &count) == TABLA_OK);
    CHECK(count > 0 && count < sizeof text);
    FAILS(tabla_transcription_write(transcription, "srt", text, count - 1, &count), TABLA_ERROR_TOO_LARGE);
    CHECK(tabla_transcription_write(transcription, "srt", text, sizeof text, &count) == TABLA_OK);
    CHECK(strncmp(text, "1\n00:00:00,000 --> 00:00:00,500\nw300\n\n", 38) == 0);
    FAILS(tabla_transcription_write(transcription, "xml", text, sizeof text, &count), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcription_write(transcription, "srt", text, sizeof text, NULL), TABLA_ERROR_ARGUMENT);
    segment.struct_size = sizeof segment;
    FAILS(tabla_transcription_next(transcription, NULL, &found), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_transcription_next(transcription, &segment, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_transcription_free(transcription) == TABLA_OK);
    FAILS(tabla_transcription_free(transcription), TABLA_ERROR_HANDLE);

    options = greedy_options();
    transcription = tabla_transcription_open(model, wav, &options);
    CHECK(transcription != NULL);
    FAILS(tabla_transcription_push(transcription, samples, 1), TABLA_ERROR_STATE);
    CHECK(tabla_transcription_cancel(transcription) == TABLA_OK);
    FAILS(tabla_transcription_next(transcription, &segment, &found), TABLA_ERROR_CANCELLED);
    CHECK(read_segments(transcription) == 2 * SEGMENTS);
    CHECK(tabla_transcription_info(transcription, &info) == TABLA_OK && info.duration == 2);
    CHECK(tabla_transcription_free(transcription) == TABLA_OK);
}

/* A long file is measured by the first call that returns a segment, which can be cancelled. */
static void measured(TablaModel *model, const char *wav) {
    TablaTranscribeOptions options = greedy_options();
    TablaTranscription *transcription = tabla_transcription_open(model, wav, &options);
    TablaTranscriptionInfo info;
    TablaSegment segment;
    int32_t found = 77;
    info.struct_size = sizeof info;
    segment.struct_size = sizeof segment;
    CHECK(transcription != NULL);
    CHECK(tabla_transcription_cancel(transcription) == TABLA_OK);
    FAILS(tabla_transcription_next(transcription, &segment, &found), TABLA_ERROR_CANCELLED);
    CHECK(tabla_transcription_info(transcription, &info) == TABLA_OK && info.duration == 0 && found == 77);
    CHECK(tabla_transcription_next(transcription, &segment, &found) == TABLA_OK && found == 1);
    CHECK(tabla_transcription_free(transcription) == TABLA_OK);
    /* It can end before it is measured. */
    transcription = tabla_transcription_open(model, wav, &options);
    CHECK(tabla_transcription_finish(transcription) == TABLA_OK);
    CHECK(read_segments(transcription) == 0);
    CHECK(tabla_transcription_free(transcription) == TABLA_OK);
}

static void in_memory(TablaModel *model, const char *wav) {
    TablaTranscribeOptions options = greedy_options();
    TablaTranscription *transcription;
    FILE *file = fopen(wav, "rb");
    static char data[32000];
    size_t bytes = file == NULL ? 0 : fread(data, 1, sizeof data, file);
    CHECK(bytes == sizeof data);
    if (file != NULL) {
        fclose(file);
    }
    /* A truncated file ends where its data ends. */
    transcription = tabla_transcription_open_memory(model, data, bytes, &options);
    CHECK(transcription != NULL && read_segments(transcription) == SEGMENTS);
    CHECK(tabla_transcription_free(transcription) == TABLA_OK);
}

static void rejects_handle(void *handle) {
    TablaTranscription *transcription = handle;
    TablaTranscriptionInfo info;
    TablaSegment segment;
    size_t count = 4711;
    int32_t found = 77;
    info.struct_size = sizeof info;
    segment.struct_size = sizeof segment;
    FAILS(tabla_transcribe(handle, samples, 1, NULL, receive, NULL), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcribe_file(handle, "f", NULL, receive, NULL), TABLA_ERROR_HANDLE);
    CHECK(tabla_transcription_new(handle, NULL) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_transcription_open(handle, "f", NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_transcription_open_memory(handle, "f", 1, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_push(transcription, samples, 1), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_finish(transcription), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_next(transcription, &segment, &found), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_info(transcription, &info), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_write(transcription, "srt", NULL, 0, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_cancel(transcription), TABLA_ERROR_HANDLE);
    FAILS(tabla_transcription_free(transcription), TABLA_ERROR_HANDLE);
    CHECK(count == 4711 && found == 77);
}

static TablaModel *load_speech(const char *path) {
    TablaLoadOptions options = cpu_options();
    TablaModel *model;
    /* A window has at most half as many tokens, of which 9 are up to its last timestamp. Each one
     * takes 0.1 seconds under valgrind. */
    options.max_context = 20;
    model = tabla_model_load(path, &options);
    CHECK(model != NULL);
    if (model == NULL) {
        exit(1);
    }
    return model;
}

int main(int argc, char **argv) {
    TablaTranscribeOptions options = greedy_options();
    TablaModel *model, *story;
    size_t i;
    if (argc != 4) {
        fprintf(stderr, "usage: transcribe <model> <WAV file> <long WAV file>\n");
        return 2;
    }
    for (i = 0; i < 2 * SAMPLES; i++) {
        samples[i] = sinf((float)i * 0.3f) * 0.3f;
    }
    layout();
    defaults();
    story = load();
    CHECK(tabla_transcription_new(story, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_STATE);
    CHECK(strstr(tabla_last_error(), "no speech model") != NULL);
    CHECK(tabla_free_model(story) == TABLA_OK);

    model = load_speech(argv[1]);
    callbacks(model, argv[2]);
    invalid_options(model, argv[2]);
    pulled(model, argv[2]);
    measured(model, argv[3]);
    in_memory(model, argv[2]);
    rejects_handle(NULL);
    rejects_handle(samples);
    rejects_handle(tabla_model_session(model));
    /* The second window is cancelled. */
    FAILS(tabla_transcribe_file(model, argv[2], &options, free_model, model), TABLA_ERROR_CANCELLED);
    printf("%d checks passed, %d failed\n", passed, failed);
    return failed != 0;
}
