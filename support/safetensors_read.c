/* The safetensors reader, strict: a file is
 *
 *     u64 N (little endian) | N bytes of JSON, beginning with `{` | data
 *
 * and is accepted only if nothing in it is left to interpretation: every byte of the data belongs
 * to exactly one tensor, every size follows from a shape, no key is repeated. The data is mapped
 * and never copied. Faults that do not hide each other are all reported.
 *
 * A sharded checkpoint is an index file, {"weight_map": {tensor: file}}, next to its files.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "support/json.h"
#include "support/tensorfile.h"

enum {
    MAX_HEADER = 100 * 1000 * 1000, /* as in the reference reader */
    MAX_SHOWN_NAME = 120,           /* bytes of a name in a message */
};

/* A name from a file, fit for a message: quoted, escaped, and cut when it is very long. */
static const char *show(hd_arena *a, const char *name) {
    hd_text t;
    hd_text_init(&t, a);
    size_t n = strlen(name);
    hd_text_quoted(&t, n > MAX_SHOWN_NAME ? hd_strndup(a, name, MAX_SHOWN_NAME) : name);
    if (n > MAX_SHOWN_NAME) hd_text_f(&t, "... (%zu bytes)", n);
    return t.at;
}

/* JSON values are reference-counted outside the arena: the arena drops the reference. */
typedef struct json_holder {
    json_t *root;
} json_holder;

static void drop_json(void *what) {
    json_holder *h = what;
    json_decref(h->root);
    h->root = NULL;
}

static json_holder *hold_json(hd_arena *a) {
    json_holder *h = hd_new(a, json_holder);
    hd_arena_defer(a, drop_json, h);
    return h;
}

/* ---- one file ------------------------------------------------------------------------------ */

typedef struct entry {
    hd_tensor t;
    uint64_t begin, end; /* offsets in the data */
} entry;

typedef struct reader {
    hd_arena *a;
    hd_diags *d;
    hd_loc loc; /* the file */
    const uint8_t *data;
    uint64_t data_bytes;
    HD_VEC(entry) entries;
    bool ranges_known; /* every entry gave a range: gaps and overlaps can be found */
} reader;

#define FAULT(r, ...) hd_err((r)->d, HD_E_FORMAT, (r)->loc, __VA_ARGS__)

static bool find_dtype(const char *name, hd_tensor_dtype *out) {
    for (int i = 0; i < HD_T_COUNT; i++) {
        if (strcmp(name, hd_tensor_dtype_name((hd_tensor_dtype)i)) != 0) continue;
        *out = (hd_tensor_dtype)i;
        return true;
    }
    return false;
}

static bool read_dtype(reader *r, const json_t *value, hd_tensor *t) {
    if (!json_is_string(value)) {
        FAULT(r, "tensor %s has no dtype string", show(r->a, t->name));
        return false;
    }
    if (find_dtype(json_string_value(value), &t->dtype)) return true;
    FAULT(r, "tensor %s has the unknown dtype %s", show(r->a, t->name),
          show(r->a, json_string_value(value)));
    return false;
}

static bool read_shape(reader *r, const json_t *value, hd_tensor *t) {
    if (!json_is_array(value)) {
        FAULT(r, "tensor %s has no shape array", show(r->a, t->name));
        return false;
    }
    if (json_array_size(value) > HD_TENSOR_MAX_RANK) {
        FAULT(r, "tensor %s has %zu dims, more than the %d that are read", show(r->a, t->name),
              json_array_size(value), HD_TENSOR_MAX_RANK);
        return false;
    }
    t->rank = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < t->rank; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            FAULT(r, "tensor %s: dim %u of the shape is not a whole number of 0 or more",
                  show(r->a, t->name), i);
            return false;
        }
        t->shape[i] = json_integer_value(dim);
    }
    return true;
}

static bool read_range(reader *r, const json_t *value, entry *e) {
    const char *name = show(r->a, e->t.name);
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (!json_is_array(value) || json_array_size(value) != 2) {
        FAULT(r, "tensor %s has no data_offsets of two numbers", name);
    } else if (!json_is_integer(begin) || !json_is_integer(end)) {
        FAULT(r, "tensor %s has data_offsets that are not whole numbers", name);
    } else if (json_integer_value(begin) < 0 || json_integer_value(end) < 0) {
        FAULT(r, "tensor %s has a negative offset", name);
    } else if (json_integer_value(end) < json_integer_value(begin)) {
        FAULT(r, "tensor %s ends before it begins", name);
    } else {
        e->begin = (uint64_t)json_integer_value(begin);
        e->end = (uint64_t)json_integer_value(end);
        return true;
    }
    r->ranges_known = false;
    return false;
}

static void reject_other_fields(reader *r, const char *name, json_t *value) {
    const char *key;
    json_t *field;
    json_object_foreach(value, key, field) {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
            strcmp(key, "data_offsets") != 0)
            FAULT(r, "tensor %s has the unknown field %s", show(r->a, name), show(r->a, key));
    }
}

static void read_entry(reader *r, const char *name, json_t *value) {
    entry e = {.t = {.name = hd_strdup(r->a, name), .file = r->loc.file}};
    if (!json_is_object(value)) {
        FAULT(r, "the entry of tensor %s is not an object", show(r->a, name));
        r->ranges_known = false;
        return;
    }
    reject_other_fields(r, name, value);
    bool typed = read_dtype(r, json_object_get(value, "dtype"), &e.t);
    bool shaped = read_shape(r, json_object_get(value, "shape"), &e.t);
    bool placed = read_range(r, json_object_get(value, "data_offsets"), &e);
    if (typed && shaped && !hd_tensor_measure(&e.t)) {
        FAULT(r, "the shape of tensor %s is too large: its size overflows", show(r->a, name));
    } else if (typed && shaped && placed && e.end - e.begin != e.t.bytes) {
        hd_text type;
        hd_text_init(&type, r->a);
        hd_tensor_print_type(&type, &e.t);
        FAULT(r, "tensor %s is %s, which takes %llu bytes, but its data_offsets span %llu",
              show(r->a, name), type.at, (unsigned long long)e.t.bytes,
              (unsigned long long)(e.end - e.begin));
    }
    if (placed) hd_push(r->a, &r->entries, e);
}

static void check_metadata(reader *r, json_t *value) {
    const char *key;
    json_t *field;
    if (!json_is_object(value)) FAULT(r, "__metadata__ is not an object");
    json_object_foreach(value, key, field) {
        if (!json_is_string(field))
            FAULT(r, "the __metadata__ field %s is not a string", show(r->a, key));
    }
}

static int by_range(const void *x, const void *y) {
    const entry *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->t.name, b->t.name);
}

/* In order of their offsets the tensors must cover the data without a gap, an overlap or trailing
 * bytes. */
static void check_coverage(reader *r) {
    uint64_t at = 0;
    const char *before = "the beginning of the data";
    for (size_t i = 0; i < r->entries.n; i++) {
        const entry *e = &r->entries.at[i];
        if (e->begin < at)
            FAULT(r, "tensor %s overlaps %s: it begins at byte %llu of the data, before byte %llu",
                  show(r->a, e->t.name), before, (unsigned long long)e->begin,
                  (unsigned long long)at);
        if (e->begin > at)
            FAULT(r, "a gap of %llu bytes that no tensor owns lies between %s and tensor %s",
                  (unsigned long long)(e->begin - at), before, show(r->a, e->t.name));
        if (e->end > at) at = e->end;
        before = hd_printf(r->a, "tensor %s", show(r->a, e->t.name));
    }
    if (at > r->data_bytes)
        FAULT(r, "the file is truncated: its tensors need %llu bytes of data, it holds %llu",
              (unsigned long long)at, (unsigned long long)r->data_bytes)
            ->hint = "was all of it downloaded or copied?";
    if (at < r->data_bytes)
        FAULT(r, "%llu trailing bytes after the last tensor belong to none",
              (unsigned long long)(r->data_bytes - at));
}

/* A hint for files that people often pass in place of a safetensors file. */
static const char *name_other_kind(hd_bytes file) {
    static const struct {
        const char *begins, *hint;
    } kinds[] = {
        {"PK\x03\x04", "this looks like a pickled checkpoint; convert it to safetensors"},
        {"\x80\x02", "this looks like a pickled checkpoint; convert it to safetensors"},
        {"GGUF", "this is a GGUF file; take the safetensors that it was made of"},
        {"<", "this looks like a web page: was the download denied?"},
        {"HADALWT", "this is a packed file already; a library opens it by itself"},
        {"\x93NUMPY", "this is a .npy file; weights are safetensors"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (file.n >= strlen(kinds[i].begins) &&
            memcmp(file.at, kinds[i].begins, strlen(kinds[i].begins)) == 0)
            return kinds[i].hint;
    const char *pointer = hd_pointer_hint(file.at, file.n);
    return pointer ? pointer : "was all of it downloaded or copied?";
}

/* Finds header and data in the file's bytes. */
static bool split_file(reader *r, hd_bytes file, const char **header, size_t *header_bytes) {
    uint64_t n = 0;
    if (file.n < 8) {
        FAULT(r, "the file is too short for safetensors: %zu bytes", file.n)->hint =
            "was all of it downloaded or copied?";
        return false;
    }
    for (int i = 7; i >= 0; i--)
        n = n << 8 | file.at[i];
    if (n > MAX_HEADER || n > file.n - 8) {
        hd_diag *g = FAULT(r, "the header length %llu is more than %s", (unsigned long long)n,
                           n > file.n - 8 ? "the file holds" : "the 100000000 bytes allowed");
        g->cause = "the first 8 bytes of a safetensors file are the length of its header";
        g->hint = name_other_kind(file);
        return false;
    }
    *header = (const char *)file.at + 8;
    *header_bytes = (size_t)n;
    if (n == 0 || **header != '{') {
        FAULT(r, "the header does not begin with '{'");
        return false;
    }
    r->data = file.at + 8 + n;
    r->data_bytes = file.n - 8 - n;
    return true;
}

static bool read_header(reader *r, const char *header, size_t n) {
    json_error_t error;
    json_holder *json = hold_json(r->a);
    json->root = json_loadb(header, n, JSON_REJECT_DUPLICATES, &error);
    if (!json->root) {
        FAULT(r, "the header is not legal JSON: %s, at byte %d of it", hd_json_fault(r->a, &error),
              error.position);
        return false;
    }
    const char *key;
    json_t *value;
    json_object_foreach(json->root, key, value) {
        if (strcmp(key, "__metadata__") == 0)
            check_metadata(r, value);
        else
            read_entry(r, key, value);
    }
    drop_json(json);
    return true;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const hd_tensor *)x)->name, ((const hd_tensor *)y)->name);
}

static void sort_by_name(hd_tensors *t) {
    if (t->list.n) qsort(t->list.at, t->list.n, sizeof *t->list.at, by_name);
}

static bool open_one(hd_arena *a, hd_diags *d, const char *path, hd_tensors *out) {
    hd_bytes file;
    const char *header;
    size_t n, errors = d->errors;
    reader r = {.a = a, .d = d, .loc = {.file = hd_strdup(a, path)}, .ranges_known = true};
    if (!hd_map_file(a, d, path, &file) || !split_file(&r, file, &header, &n) ||
        !read_header(&r, header, n))
        return false;
    if (r.entries.n) qsort(r.entries.at, r.entries.n, sizeof *r.entries.at, by_range);
    if (r.ranges_known) check_coverage(&r);
    if (d->errors != errors) return false;
    for (size_t i = 0; i < r.entries.n; i++) {
        hd_tensor t = r.entries.at[i].t;
        t.data = r.data + r.entries.at[i].begin;
        hd_push(a, &out->list, t);
    }
    sort_by_name(out);
    return true;
}

/* ---- sharded ------------------------------------------------------------------------------- */

typedef struct shard {
    const char *name;
    hd_tensors tensors;
    bool opened; /* without a fault */
} shard;

typedef struct index_reader {
    hd_arena *a;
    hd_diags *d;
    hd_loc loc;
    const char *dir, *text;
    json_t *map; /* tensor name -> file name; held by the caller */
    HD_VEC(shard) shards;
} index_reader;

/* A shard is a file in the directory of the index: any name that could lead elsewhere is rejected.
 */
static bool legal_shard_name(const char *name) {
    const char *end = ".safetensors";
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0 && !strpbrk(name, "/\\") && name[0] != '.';
}

static shard *find_shard(index_reader *x, const char *name) {
    for (size_t i = 0; i < x->shards.n; i++)
        if (strcmp(x->shards.at[i].name, name) == 0) return &x->shards.at[i];
    return NULL;
}

/* Where the index names the shard first; line 0 if it is written with escapes. */
static hd_loc place_of_shard(const index_reader *x, const char *name) {
    hd_loc loc = x->loc;
    const char *quoted = hd_printf(x->a, "\"%s\"", name), *at = strstr(x->text, quoted);
    if (!at) return loc;
    loc.line = loc.column = 1;
    for (const char *p = x->text; p < at; p++) {
        loc.column++;
        if (*p == '\n') loc.line++, loc.column = 1;
    }
    loc.end_column = loc.column + (uint32_t)strlen(quoted);
    return loc;
}

/* Reports a shard that does not exist: a part of the checkpoint was not copied or downloaded. */
static void reject_missing(index_reader *x, const char *name, const char *tensor) {
    json_t *file;
    const char *key;
    size_t n = 0;
    json_object_foreach(x->map, key, file) {
        n += json_is_string(file) && strcmp(json_string_value(file), name) == 0;
    }
    hd_diag *g = hd_err(x->d, HD_E_WEIGHTS, place_of_shard(x, name),
                        "the shard %s of the checkpoint is missing", show(x->a, name));
    g->cause = n == 1 ? hd_printf(x->a, "the index has the tensor %s in it", show(x->a, tensor))
                      : hd_printf(x->a, "the index has %zu tensors in it, %s among them", n,
                                  show(x->a, tensor));
    g->hint = "all shards lie beside the index; copy or download the rest of them";
}

static void open_shard(index_reader *x, const char *name, const char *tensor) {
    shard s = {.name = hd_strdup(x->a, name)};
    const char *path = hd_path_join(x->a, x->dir, name);
    if (hd_exists(path))
        s.opened = open_one(x->a, x->d, path, &s.tensors);
    else
        reject_missing(x, s.name, tensor);
    hd_push(x->a, &x->shards, s);
}

/* Checks the map's entries and opens every file that is named, once. */
static void open_shards(index_reader *x) {
    const char *tensor;
    json_t *file;
    json_object_foreach(x->map, tensor, file) {
        const char *name = json_string_value(file);
        if (!name) {
            FAULT(x, "the weight_map entry of tensor %s is not a string", show(x->a, tensor));
        } else if (find_shard(x, name)) {
            continue;
        } else if (!legal_shard_name(name)) {
            hd_diag *g = FAULT(x,
                               "the weight_map names %s, which is no plain .safetensors file "
                               "name",
                               show(x->a, name));
            g->hint = "shards lie in the directory of the index; a path in their name is rejected";
            shard s = {.name = hd_strdup(x->a, name)};
            hd_push(x->a, &x->shards, s);
        } else {
            open_shard(x, name, tensor);
        }
    }
}

/* Checks that every tensor of the map is in the file that the map names for it. */
static void check_mapped(index_reader *x) {
    const char *tensor;
    json_t *file;
    json_object_foreach(x->map, tensor, file) {
        const shard *s = json_is_string(file) ? find_shard(x, json_string_value(file)) : NULL;
        if (s && s->opened && !hd_tensors_find(&s->tensors, tensor))
            FAULT(x, "tensor %s is not in %s, where the weight_map has it", show(x->a, tensor),
                  show(x->a, s->name));
    }
}

/* Checks that the map names every tensor of each file, with that file. Collects the tensors;
 * returns the sum of their bytes. */
static uint64_t collect_shards(index_reader *x, hd_tensors *out) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < x->shards.n; i++) {
        const shard *s = &x->shards.at[i];
        for (size_t j = 0; j < s->tensors.list.n; j++) {
            const hd_tensor *t = &s->tensors.list.at[j];
            const char *named = json_string_value(json_object_get(x->map, t->name));
            if (!named || strcmp(named, s->name) != 0)
                FAULT(x, "tensor %s is in %s, where the weight_map does not have it",
                      show(x->a, t->name), show(x->a, s->name));
            bytes += t->bytes;
            hd_push(x->a, &out->list, *t);
        }
    }
    return bytes;
}

static json_t *parse_index(index_reader *x, json_holder *json) {
    size_t n;
    x->text = hd_read_text(x->a, x->d, x->loc.file, MAX_HEADER, &n);
    json->root = x->text ? hd_json_parse(x->d, "index", x->loc.file, x->text, n) : NULL;
    if (!json->root) return NULL;
    json_t *map = json_object_get(json->root, "weight_map");
    if (!json_is_object(map)) FAULT(x, "the index has no object \"weight_map\"");
    return json_is_object(map) ? map : NULL;
}

/* Checkpoints count `total_size` in different ways, and many are edited by hand: a difference is
 * only a warning. */
static void check_total_size(index_reader *x, const json_t *root, uint64_t bytes) {
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    if (!total || (json_is_integer(total) && (uint64_t)json_integer_value(total) == bytes)) return;
    hd_warn(x->d, HD_E_FORMAT, x->loc,
            "total_size of the index is not the %llu bytes of its "
            "tensors",
            (unsigned long long)bytes);
}

static bool open_index(hd_arena *a, hd_diags *d, const char *path, hd_tensors *out) {
    size_t errors = d->errors;
    json_holder *json = hold_json(a);
    index_reader x = {
        .a = a, .d = d, .loc = {.file = hd_strdup(a, path)}, .dir = hd_path_dir(a, path)};
    x.map = parse_index(&x, json);
    if (!x.map) return false;
    open_shards(&x);
    check_mapped(&x);
    uint64_t bytes = collect_shards(&x, out);
    if (d->errors == errors) check_total_size(&x, json->root, bytes);
    drop_json(json);
    sort_by_name(out);
    return d->errors == errors;
}

/* ---- folder -------------------------------------------------------------------------------- */

static void close_folder(void *what) {
    DIR **dir = what;
    if (*dir) closedir(*dir);
    *dir = NULL;
}

typedef struct folder_files {
    const char *first; /* *.safetensors */
    size_t n;
    bool pickled; /* there are pickled checkpoints (.bin, .pth) */
} folder_files;

/* Lists a model folder; false: it cannot be read. */
static bool list_folder(hd_arena *a, const char *folder, folder_files *out) {
    *out = (folder_files){0};
    DIR **dir = hd_new(a, DIR *);
    hd_arena_defer(a, close_folder, dir);
    *dir = opendir(folder);
    if (!*dir) return false;
    for (struct dirent *e; (e = readdir(*dir));) {
        out->pickled |= hd_ends_with(e->d_name, ".bin") || hd_ends_with(e->d_name, ".pth");
        if (e->d_name[0] == '.' || !hd_ends_with(e->d_name, ".safetensors")) continue;
        if (out->n++ == 0) out->first = hd_path_join(a, folder, e->d_name);
    }
    close_folder(dir);
    return true;
}

bool hd_safetensors_exist(hd_arena *a, const char *path) {
    folder_files files;
    if (!hd_is_directory(path)) return hd_exists(path);
    return hd_exists(hd_path_join(a, path, "model.safetensors.index.json")) ||
           (list_folder(a, path, &files) && files.n > 0);
}

/* The only *.safetensors of a folder; NULL and a diagnostic if there is none or more than one. */
static const char *only_file(hd_arena *a, hd_diags *d, const char *folder) {
    folder_files files;
    if (!list_folder(a, folder, &files)) {
        hd_err(d, HD_E_IO, HD_NOWHERE, "cannot read '%s': %s", folder, strerrordesc_np(errno));
        return NULL;
    }
    const size_t n = files.n;
    if (n == 1 && strcmp(hd_path_base(files.first), "adapter_model.safetensors") == 0) {
        hd_err(d, HD_E_IO, HD_NOWHERE, "the folder '%s' holds an adapter (LoRA), and no model",
               folder)
            ->hint =
            "merge it into the model that it was trained for (peft: merge_and_unload), and "
            "save that";
        return NULL;
    }
    if (n == 1) return files.first;
    hd_diag *g = hd_err(d, HD_E_IO, HD_NOWHERE,
                        n ? "the folder '%s' holds %zu .safetensors files and no index"
                          : "the folder '%s' holds no .safetensors file",
                        folder, n);
    if (n)
        g->hint = "name the file, or add model.safetensors.index.json";
    else if (files.pickled)
        g->hint = "pickled checkpoints are not read; convert them to safetensors";
    else
        g->hint = "is the download complete? --weights names others; hadal opt, and compile with "
                  "--emit=so,header or kernel, need none";
    return NULL;
}

bool hd_safetensors_open(hd_arena *a, hd_diags *d, const char *path, hd_tensors *out) {
    *out = (hd_tensors){0};
    if (!hd_is_directory(path))
        return hd_ends_with(path, ".json") ? open_index(a, d, path, out)
                                           : open_one(a, d, path, out);
    const char *single = hd_path_join(a, path, "model.safetensors");
    const char *index = hd_path_join(a, path, "model.safetensors.index.json");
    if (hd_exists(single)) return open_one(a, d, single, out);
    if (hd_exists(index)) return open_index(a, d, index, out);
    const char *only = only_file(a, d, path);
    return only && open_one(a, d, only, out);
}
