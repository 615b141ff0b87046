/* Kill points of a process: every write that reaches a file, a device or a directory, and the end of the process there.
 *
 * Loaded with LD_PRELOAD. `crash_arm` begins to count: each call gets a label `thread device kind ordinal part`, which is
 * written to the log, and the process is killed where the label is the one that was asked for. `part` is `before` (nothing
 * of the call was done) or `half` (half of its bytes were). The thread is `main` or `worker`: which worker of a pool takes a
 * piece of work is not decided by us. Only what lies below the given directories counts, and sockets of the network.
 * `#17` instead of a label is the seventeenth call, whatever it is. `crash_clock` moves the wall clock that is read.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 512
#define LABEL 320

static int log_fd = -1;
static char wanted[LABEL];
static char below[2][PATH_MAX];
static struct { char name[LABEL]; unsigned count; } counts[SLOTS];
static unsigned calls;
static time_t clock_offset_s;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

void crash_arm(int log, const char *label, const char *first, const char *second)
{
    memset(counts, 0, sizeof counts);
    calls = 0;
    snprintf(wanted, sizeof wanted, "%s", label);
    snprintf(below[0], sizeof below[0], "%s", first);
    snprintf(below[1], sizeof below[1], "%s", second);
    log_fd = log;
}

void crash_clock(long offset_s)
{
    clock_offset_s = offset_s;
}

static void die(void)
{
    syscall(SYS_kill, (long)getpid(), (long)SIGKILL);
    for (;;) pause();
}

/* The ordinal of a call among those with the same name, from 1. */
static unsigned ordinal_of(const char *name)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!counts[slot].name[0]) snprintf(counts[slot].name, LABEL, "%s", name);
        if (!strcmp(counts[slot].name, name)) return ++counts[slot].count;
    }
    return 0;
}

/* Note a call; return 1 if half of it is to be done before the end. */
static int point(const char *device, const char *kind, int divisible)
{
    char name[LABEL - 24], before[LABEL], half[LABEL], lines[2 * LABEL];
    const char *thread = syscall(SYS_gettid) == getpid() ? "main" : "worker";
    snprintf(name, sizeof name, "%s %s %s", thread, device, kind);
    pthread_mutex_lock(&counting);
    unsigned ordinal = ordinal_of(name);
    snprintf(before, sizeof before, "%s %u before", name, ordinal);
    snprintf(half, sizeof half, "%s %u half", name, ordinal);
    int length = snprintf(lines, sizeof lines, divisible ? "%s\n%s\n" : "%s\n", before, half);
    syscall(SYS_write, (long)log_fd, lines, (long)length);
    calls++;
    if (!strcmp(before, wanted) || (wanted[0] == '#' && calls == (unsigned)atoi(wanted + 1))) die();
    int is_half = divisible && !strcmp(half, wanted);
    if (!is_half) pthread_mutex_unlock(&counting);
    return is_half; /* nobody else gets on: the end is near */
}

static const char *tail(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_ours(const char *path)
{
    for (int each = 0; each < 2; each++)
        if (below[each][0] && !strncmp(path, below[each], strlen(below[each]))) return 1;
    return 0;
}

/* The name of what stands behind a descriptor; 0 if it does not count. */
static int device_of(int fd, char *device, size_t size)
{
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    char link[64], path[PATH_MAX];
    if (log_fd < 0) return 0;
    if (!getpeername(fd, (struct sockaddr *)&peer, &length)) {
        if (peer.sin_family != AF_INET) return 0;
        char host[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &peer.sin_addr, host, sizeof host);
        snprintf(device, size, "%s:%u", host, ntohs(peer.sin_port));
        return 1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t end = readlink(link, path, sizeof path - 1);
    if (end <= 0) return 0;
    path[end] = 0;
    if (!is_ours(path)) return 0;
    snprintf(device, size, "%s", tail(path));
    return 1;
}

#define REAL(name, type) \
    static type real; \
    if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);

static int halved(int fd, const char *kind, size_t size)
{
    char device[256];
    return device_of(fd, device, sizeof device) && point(device, kind, size > 1);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    REAL("pwrite", pwrite_fn);
    if (halved(fd, "pwrite", size)) { real(fd, bytes, size / 2, at); die(); }
    return real(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    REAL("pwrite64", pwrite_fn);
    if (halved(fd, "pwrite", size)) { real(fd, bytes, size / 2, at); die(); }
    return real(fd, bytes, size, at);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    typedef ssize_t (*fn)(int, const void *, size_t);
    REAL("write", fn);
    if (halved(fd, "write", size)) { real(fd, bytes, size / 2); die(); }
    return real(fd, bytes, size);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    typedef ssize_t (*fn)(int, const void *, size_t, int);
    REAL("send", fn);
    if (halved(fd, "send", size)) { real(fd, bytes, size / 2, flags); die(); }
    return real(fd, bytes, size, flags);
}

int fsync(int fd)
{
    typedef int (*fn)(int);
    REAL("fsync", fn);
    halved(fd, "fsync", 0);
    return real(fd);
}

int fdatasync(int fd)
{
    typedef int (*fn)(int);
    REAL("fdatasync", fn);
    halved(fd, "fsync", 0);
    return real(fd);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    typedef int (*fn)(clockid_t, struct timespec *);
    REAL("clock_gettime", fn);
    int failed = real(which, now);
    if (!failed && which == CLOCK_REALTIME) now->tv_sec += clock_offset_s;
    return failed;
}

int rename(const char *from, const char *to)
{
    typedef int (*fn)(const char *, const char *);
    REAL("rename", fn);
    if (log_fd >= 0 && is_ours(to)) point(tail(to), "rename", 0);
    return real(from, to);
}

int unlink(const char *path)
{
    typedef int (*fn)(const char *);
    REAL("unlink", fn);
    if (log_fd >= 0 && is_ours(path)) point(tail(path), "unlink", 0);
    return real(path);
}
