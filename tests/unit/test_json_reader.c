/* Reading JSON: what is given out under which path, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/json_reader.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void list_member(void *user, const json_member *member) {
    char *text = user;
    static const char *const kinds[] = {"s", "n", "t", "f", "0"};
    const size_t used = strlen(text);
    if (member->kind == JSON_NUMBER) {
        snprintf(text + used, 1024 - used, "%s=n%g;", member->path, member->number);
    } else {
        snprintf(text + used, 1024 - used, "%s=%s%s;", member->path, kinds[member->kind], member->text);
    }
}

static void members_come_under_their_path(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{}", ""},
        {" {\"a\": 1, \"b\" :-2.5e1 , \"c\":\"x\"}\n", "a=n1;b=n-25;c=sx;"},
        {"{\"a\":{\"b\":{\"c\":true}},\"d\":null,\"e\":false}", "a.b.c=t;d=0;e=f;"},
        {"{\"a\":[1,{\"b\":2},[\"x\"]],\"c\":3}", "c=n3;"},
        {"{\"a\":[],\"b\":{}}", ""},
        {"{\"a\":\"q\\\"\\\\\\/\\n\\u00e4\\u20ac\\ud83d\\ude00\"}", "a=sq\"\\/\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80;"},
        {"{\"a\":\"\\ud83dx\"}", "a=s\xef\xbf\xbdx;"},
        {"{\"a\":\"x\\u0000y\"}", "a=sx y;"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char found[1024] = "";
        const char *problem = NULL;
        assert_true(json_read_object(cases[i].text, strlen(cases[i].text), list_member, found, &problem));
        assert_string_equal(found, cases[i].expected);
        assert_null(problem);
    }
}

static void what_is_no_object_is_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "[]",
        "1",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{\"a\":\"x",
        "{\"a\":\"\\",
        "{\"a\":\"\\q\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":1}{}",
        "{\"a\":nul}",
        "{\"a\":--1}",
        "{\"a\":\"\n\"}",
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char found[1024] = "";
        const char *problem = NULL;
        if (json_read_object(cases[i], strlen(cases[i]), list_member, found, &problem)) fail_msg("taken: %s", cases[i]);
        assert_non_null(problem);
    }
}

/* Every beginning of a right text is refused, read from memory that ends there: a sanitizer sees a byte too much. */
static void no_text_that_ends_early_is_read_past_its_end(void **state) {
    (void)state;
    static const char whole[] =
        "{\"a\": \"x\\ud83d\\ude00\", \"b\": [true, null, {\"c\": -1.5}], \"d\": {\"e\": false}}";
    for (size_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
        char *part = malloc(bytes > 0 ? bytes : 1), found[1024] = "";
        const char *problem = NULL;
        assert_non_null(part);
        memcpy(part, whole, bytes);
        assert_false(json_read_object(part, bytes, list_member, found, &problem));
        free(part);
    }
}

static void depth_and_names_have_a_bound(void **state) {
    (void)state;
    char deep[256] = "{\"a\":", long_name[600] = "{\"", found[1024] = "";
    const char *problem = NULL;
    memset(deep + 5, '[', 100);
    assert_false(json_read_object(deep, strlen(deep), list_member, found, &problem));
    assert_string_equal(problem, "nested too deeply");
    memset(long_name + 2, 'n', 500);
    strcpy(long_name + 502, "\":1}");
    assert_false(json_read_object(long_name, strlen(long_name), list_member, found, &problem));
    assert_string_equal(problem, "a name that is too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_under_their_path),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(no_text_that_ends_early_is_read_past_its_end),
        cmocka_unit_test(depth_and_names_have_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
