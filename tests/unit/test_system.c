/* What is read from /proc and cgroup files, from copies of such files. */
#include "base/system.h"
#include "support/check.h"
#include "support/scratch.h"

#define MIB(n) ((uint64_t)(n) << 20)

typedef struct {
    const char *path, *text;
} fake_file;

static const char *fake_root(const char *name, const fake_file *files, size_t count) {
    static char root[512];
    char path[512], below[256];
    for (size_t i = 0; i < count; i++) {
        snprintf(below, sizeof below, "%s%s", name, files[i].path);
        scratch_write(below, files[i].text, strlen(files[i].text), path, sizeof path);
    }
    return scratch_path(name, root, sizeof root);
}
#define FAKE_ROOT(name, files) fake_root(name, files, sizeof(files) / sizeof *(files))

static const fake_file meminfo = {"/proc/meminfo", "MemTotal:        8000000 kB\nMemFree:          100000 kB\n"
                                                   "MemAvailable:    4096000 kB\n"};

static void test_process(void **state) {
    (void)state;
    const fake_file files[] = {
        {"/proc/self/status", "Name:\tlever\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     600 kB\n"
                              "RssFile:\t     400 kB\nThreads:\t3\n"},
        {"/proc/self/smaps_rollup", "55d0 - 7ffd ---p 00000000 00:00 0   [rollup]\nRss:   1024 kB\n"
                                    "AnonHugePages:      4096 kB\n"},
    };
    lv_process_memory memory;
    lv_process_memory_read(FAKE_ROOT("process", files), &memory);
    assert_int_equal(memory.rss_bytes, 1024 * 1024);
    assert_int_equal(memory.rss_peak_bytes, 2048 * 1024);
    assert_int_equal(memory.rss_anon_bytes, 600 * 1024);
    assert_int_equal(memory.rss_file_bytes, 400 * 1024);
    assert_int_equal(memory.huge_page_bytes, 4096 * 1024);
}

static void test_no_cgroup(void **state) {
    (void)state;
    const fake_file files[] = {meminfo};
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("none", files), &memory);
    assert_int_equal(memory.total_bytes, UINT64_C(8000000) * 1024);
    assert_int_equal(memory.available_bytes, MIB(4000));
    assert_true(memory.cgroup_limit == UINT64_MAX);
    assert_int_equal(memory.usable_bytes, MIB(4000));
}

static void test_nothing_readable(void **state) {
    (void)state;
    lv_system_memory memory;
    lv_system_memory_read("/nonexistent", &memory);
    assert_true(memory.total_bytes > 0);
    assert_true(memory.usable_bytes > 0 && memory.usable_bytes <= memory.total_bytes);
    lv_process_memory process;
    lv_process_memory_read("/nonexistent", &process);
    assert_int_equal(process.rss_bytes, 0);
}

static void test_cgroup_v2(void **state) {
    (void)state;
    const fake_file files[] = {
        meminfo,
        {"/proc/self/cgroup", "0::/user.slice/app\n"},
        {"/sys/fs/cgroup/user.slice/app/memory.max", "1073741824\n"},
        {"/sys/fs/cgroup/user.slice/app/memory.current", "524288000\n"},
        {"/sys/fs/cgroup/user.slice/app/memory.stat", "anon 1000\ninactive_file 104857600\nactive_file 104857600\n"},
        {"/sys/fs/cgroup/user.slice/memory.max", "max\n"},
    };
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("v2", files), &memory);
    assert_int_equal(memory.cgroup_limit, MIB(1024));
    assert_int_equal(memory.cgroup_used, MIB(300));
    assert_int_equal(memory.usable_bytes, MIB(724));
}

/* A parent that leaves less room than the group itself decides. */
static void test_cgroup_v2_parent(void **state) {
    (void)state;
    const fake_file files[] = {
        meminfo,
        {"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/b/memory.max", "1073741824\n"},
        {"/sys/fs/cgroup/a/b/memory.current", "0\n"},
        {"/sys/fs/cgroup/a/memory.max", "2147483648\n"},
        {"/sys/fs/cgroup/a/memory.current", "2097152000\n"},
    };
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("v2parent", files), &memory);
    assert_int_equal(memory.cgroup_limit, MIB(2048));
    assert_int_equal(memory.usable_bytes, MIB(48));
}

/* A parent with more room changes nothing. */
static void test_cgroup_v2_wide_parent(void **state) {
    (void)state;
    const fake_file files[] = {
        meminfo,
        {"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/b/memory.max", "1073741824\n"},
        {"/sys/fs/cgroup/a/b/memory.current", "0\n"},
        {"/sys/fs/cgroup/a/memory.max", "2147483648\n"},
        {"/sys/fs/cgroup/a/memory.current", "104857600\n"},
    };
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("v2wide", files), &memory);
    assert_int_equal(memory.cgroup_limit, MIB(1024));
    assert_int_equal(memory.usable_bytes, MIB(1024));
}

static void test_cgroup_v1(void **state) {
    (void)state;
    const fake_file files[] = {
        meminfo,
        {"/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/0123\n1:name=systemd:/y\n0::/z\n"},
        /* In a container the host's path is not there; the root of the mount is the group. */
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "629145600\n"},
        {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n"},
        {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 104857600\ntotal_active_file 0\n"},
    };
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("v1", files), &memory);
    assert_int_equal(memory.cgroup_limit, MIB(600));
    assert_int_equal(memory.cgroup_used, MIB(100));
    assert_int_equal(memory.usable_bytes, MIB(500));
}

static void test_cgroup_v1_unlimited(void **state) {
    (void)state;
    const fake_file files[] = {
        meminfo,
        {"/proc/self/cgroup", "5:memory:/\n"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
    };
    lv_system_memory memory;
    lv_system_memory_read(FAKE_ROOT("v1free", files), &memory);
    assert_true(memory.cgroup_limit == UINT64_MAX);
    assert_int_equal(memory.usable_bytes, MIB(4000));
}

static void test_this_machine(void **state) {
    (void)state;
    lv_process_memory process;
    lv_process_memory_read("", &process);
    assert_true(process.rss_bytes > 0 && process.rss_bytes <= process.rss_peak_bytes);
    assert_true(process.rss_anon_bytes + process.rss_file_bytes <= process.rss_peak_bytes);
    lv_system_memory memory;
    lv_system_memory_read("", &memory);
    assert_true(memory.usable_bytes > 0 && memory.usable_bytes <= memory.total_bytes);
    lv_system_trim_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process),          cmocka_unit_test(test_no_cgroup),
        cmocka_unit_test(test_nothing_readable), cmocka_unit_test(test_cgroup_v2),
        cmocka_unit_test(test_cgroup_v2_parent), cmocka_unit_test(test_cgroup_v2_wide_parent),
        cmocka_unit_test(test_cgroup_v1),        cmocka_unit_test(test_cgroup_v1_unlimited),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
