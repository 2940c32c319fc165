/* The line with the figures of an answer says why it was written without the draft, unless it is to be quiet. */
#include <unistd.h>

#include "cli/talk.h"
#include "support/check.h"
#include "support/scratch.h"

static char said[4096];

static void show(const lever_statistics *statistics, bool quiet) {
    static const cli_options loud = {.quiet = false}, silent = {.quiet = true};
    const talk opened = {.options = quiet ? &silent : &loud};
    const reply answer = {.statistics = *statistics};
    char path[512];
    FILE *file = fopen(scratch_path("stderr", path, sizeof path), "w+");
    assert_non_null(file);
    fflush(stderr);
    const int kept = dup(2);
    assert_true(kept >= 0 && dup2(fileno(file), 2) == 2);
    talk_show_statistics(&opened, &answer, 7);
    fflush(stderr);
    assert_int_equal(dup2(kept, 2), 2);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
}

static void test_says_where_the_draft_is(void **state) {
    (void)state;
    lever_statistics statistics = {.completion_tokens = 50, .tokens_per_second = 5, .ram_budget = UINT64_MAX};
    show(&statistics, false);
    assert_non_null(strstr(said, "50 tokens at 5.00 tok/s; prompt"));
    assert_null(strstr(said, "draft"));
    statistics.draft_dropped = true;
    show(&statistics, false);
    assert_non_null(strstr(said, "the draft left"));
    show(&statistics, true);
    assert_string_equal(said, "");
    statistics.draft_dropped = false;
    statistics.draft_away = true;
    show(&statistics, false);
    assert_non_null(strstr(said, "the draft is away"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_says_where_the_draft_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
