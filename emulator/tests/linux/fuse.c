/* A FUSE server: mounts at MOUNTPOINT the files of the folder FOLDER that are named after it, until it
 * is killed. `fuse MOUNTPOINT FOLDER NAME..` */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static char **names, *folder, in[1 << 18], out[1 << 18];
static int count, device;

static void answer(const struct fuse_in_header *to, int error, const void *data, size_t size) {
    struct fuse_out_header head = { sizeof head + size, error, to->unique };
    memcpy(out, &head, sizeof head);
    if (size) memcpy(out + sizeof head, data, size);
    if (write(device, out, head.len) < 0 && errno != ENOENT) perror("answer");
}

/* Node 1 is the folder, node 2 the first file. */
static int attributes(unsigned long node, struct fuse_attr *to) {
    char path[4096];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", folder, node > 1 ? names[node - 2] : "");
    if (stat(path, &s)) return -errno;
    to->ino = node, to->size = s.st_size, to->mode = s.st_mode, to->nlink = 1;
    return 0;
}

static void serve(const struct fuse_in_header *h, const void *body) {
    struct fuse_entry_out entry = { 0 };
    struct fuse_attr_out attr = { 0 };
    struct fuse_open_out open_ = { 1, 0, 0 };
    struct fuse_statfs_out statfs_ = { 0 };
    struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 1 << 16 };
    const struct fuse_read_in *r = body;
    static char bytes[1 << 17];
    char path[4096];
    switch (h->opcode) {
    case FUSE_INIT: return answer(h, 0, &init, sizeof init);
    case FUSE_FORGET: case FUSE_BATCH_FORGET: return;
    case FUSE_LOOKUP:
        for (int i = 0; i < count; i++) if (!strcmp(names[i], body)) entry.nodeid = i + 2;
        if (!entry.nodeid) return answer(h, -ENOENT, 0, 0);
        attributes(entry.nodeid, &entry.attr);
        return answer(h, 0, &entry, sizeof entry);
    case FUSE_GETATTR:
        attributes(h->nodeid, &attr.attr);
        return answer(h, 0, &attr, sizeof attr);
    case FUSE_STATFS: return answer(h, 0, &statfs_, sizeof statfs_);
    case FUSE_OPEN: case FUSE_OPENDIR: return answer(h, 0, &open_, sizeof open_);
    case FUSE_READ: {
        snprintf(path, sizeof path, "%s/%s", folder, names[h->nodeid - 2]);
        int file = open(path, O_RDONLY);
        ssize_t n = pread(file, bytes, r->size < sizeof bytes ? r->size : sizeof bytes, r->offset);
        close(file);
        return answer(h, 0, bytes, n < 0 ? 0 : n);
    }
    case FUSE_FLUSH: case FUSE_RELEASE: case FUSE_RELEASEDIR: return answer(h, 0, 0, 0);
    default: return answer(h, -ENOSYS, 0, 0);
    }
}

int main(int argc, char **argv) {
    char how[100];
    folder = argv[2], names = argv + 3, count = argc - 3;
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) return 77;
    snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("server", argv[1], "fuse", 0, how)) return 77;
    puts("mounted");
    fflush(stdout);
    for (ssize_t n; (n = read(device, in, sizeof in)) > 0 || errno == EINTR || errno == ENOENT;)
        if (n > 0) serve((void *)in, in + sizeof(struct fuse_in_header));
    return 0;
}
