/* Preloaded into a server: follows marks "mark-NNNNNN" from the write-ahead log's bytes, through a
 * completed sync of it, to the socket. The file that TOLD names gets a line "N 1" for each mark that
 * is sent (or "N 0" where it was not synced by then), and "sync" for each sync of the log.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 100000
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { UNSEEN, WRITTEN, BEING_SYNCED, SYNCED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char state[MOST];
static int told = -1;

__attribute__((constructor)) static void begin(void) {
    told = open(getenv("TOLD"), O_CREAT | O_WRONLY | O_APPEND, 0600);
}

static int is_log(int fd) {
    char link[64], file[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, file, sizeof file);
    return n > 4 && !memcmp(file + n - 4, "-wal", 4);
}

static int is_socket(int fd) {
    int type;
    socklen_t size = sizeof type;
    return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
}

/* The number of the next mark, or -1; *at moves behind it. */
static int next_mark(const char **at, const char *end) {
    const char *found;
    while ((found = memmem(*at, end - *at, "mark-", 5)) && end - found >= 11) {
        char digits[7] = {0};
        *at = found + 5;
        memcpy(digits, *at, 6);
        int number = atoi(digits);
        if (strspn(digits, "0123456789") == 6 && number < MOST) return number;
    }
    return -1;
}

static void written(int fd, const char *data, size_t size) {
    if (!is_log(fd)) return;
    pthread_mutex_lock(&lock);
    for (const char *at = data;;) {
        int n = next_mark(&at, data + size);
        if (n < 0) break;
        if (state[n] == UNSEEN) state[n] = WRITTEN;
    }
    pthread_mutex_unlock(&lock);
}

static void said(const char *data, size_t size) {
    pthread_mutex_lock(&lock);
    for (const char *at = data;;) {
        char line[32];
        int n = next_mark(&at, data + size);
        if (n < 0) break;
        int length = snprintf(line, sizeof line, "%d %d\n", n, state[n] == SYNCED);
        if (REAL(write)(told, line, length) != length) abort();
    }
    pthread_mutex_unlock(&lock);
}

static void become(int from, int to) {
    pthread_mutex_lock(&lock);
    for (int n = 0; n < MOST; n++)
        if (state[n] == from) state[n] = to;
    pthread_mutex_unlock(&lock);
}

static int synced(int fd, int (*sync)(int)) {
    if (!is_log(fd)) return sync(fd);
    become(WRITTEN, BEING_SYNCED);
    int failed = sync(fd);
    become(BEING_SYNCED, failed ? WRITTEN : SYNCED);
    if (REAL(write)(told, "sync\n", 5) != 5) abort();
    return failed;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }

int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    written(fd, data, size);
    return REAL(pwrite)(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    written(fd, data, size);
    return REAL(pwrite64)(fd, data, size, at);
}

ssize_t write(int fd, const void *data, size_t size) {
    if (is_socket(fd))
        said(data, size);
    else
        written(fd, data, size);
    return REAL(write)(fd, data, size);
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    said(data, size);
    return REAL(send)(fd, data, size, flags);
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    for (int i = 0; i < n && is_socket(fd); i++) said(parts[i].iov_base, parts[i].iov_len);
    return REAL(writev)(fd, parts, n);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    for (size_t i = 0; i < message->msg_iovlen; i++)
        said(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
    return REAL(sendmsg)(fd, message, flags);
}
