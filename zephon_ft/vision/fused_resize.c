/* Resize, turn and cut into tiles in one pass: see fused_resize.py, which calls it and says what it computes.

   Rows of the source are narrowed a few at a time into a ring that holds no more than one new row needs, so that what
   is between the two passes stays in the first-level cache; each finished row goes straight to its places.

   The arithmetic is that of torch's uint8 kernel: weights are computed in double precision, rounded to 16 bits with as
   many binary places as the largest allows, and each pass rounds to 8 bits. Compile with -ffp-contract=off: fused
   multiplication and addition would round weights otherwise. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    SPARE = 64, /* bytes that may be read and written behind a row: one register */
    BAND = 32,  /* rows that are turned together, or fetched ahead, at most */
    OUT_OF_MEMORY = -1,
};

/* How one side is resized: new pixel i is the sum of `taps` old ones from first[i] on, by weights[i * taps] on. */
typedef struct {
    int size;      /* new pixels */
    int taps;      /* even; the last may have no weight */
    int precision; /* binary places of the weights */
    int32_t *first;
    int16_t *weights;
} Axis;

/* Where the upright image goes: pixel (y, x) to rows[y] + columns[x / tile_width] + 3 * (x % tile_width). */
typedef struct {
    uint8_t *memory;
    int height, width, tile_width;
    size_t *rows;    /* offset of each row's piece in the first tile of its row of tiles */
    size_t *columns; /* offset of each tile of a row of tiles from the first */
} Target;

/* Bicubic convolution with a = -0.5, as Pillow and torch have it where they antialias. */
static double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    return 0.0;
}

/* `exact`, (new_size, most) weights, and the first old pixel of each new one; returns the most taps that one has. */
static int exact_weights(double *exact, int most, int32_t *first, int size, int new_size, double scale) {
    const double support = scale >= 1.0 ? 2.0 * scale : 2.0, inverse = scale >= 1.0 ? 1.0 / scale : 1.0;
    int taps = 0;
    for (int i = 0; i < new_size; i++, exact += most) {
        const double center = scale * (i + 0.5);
        const int64_t begin = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
        first[i] = (int32_t)(begin < 0 ? 0 : begin < size ? begin : size - 1);
        int count = (int)(end < size ? end : size) - first[i];
        count = count < 0 ? 0 : count > most ? most : count;
        double total = 0.0;
        for (int j = 0; j < count; j++) total += exact[j] = cubic((j + first[i] - center + 0.5) * inverse);
        for (int j = 0; j < count && total != 0.0; j++) exact[j] /= total;
        if (count > taps) taps = count;
    }
    return taps;
}

/* Tiles lie in blocks of merge x merge, block by block, row by row within each. */
static int make_target(Target *target, int tile_height, int tile_width, int merge) {
    const size_t tile = (size_t)tile_height * tile_width * 3;
    const int tiles = target->width / tile_width;
    target->tile_width = tile_width;
    target->rows = malloc(sizeof(size_t) * target->height);
    target->columns = malloc(sizeof(size_t) * tiles);
    if (!target->rows || !target->columns) return OUT_OF_MEMORY;
    for (int y = 0; y < target->height; y++) {
        const int of_block = y / tile_height % merge, block = y / tile_height - of_block;
        const size_t line = (size_t)(y % tile_height) * tile_width * 3;
        target->rows[y] = ((size_t)block * tiles + of_block * merge) * tile + line;
    }
    for (int x = 0; x < tiles; x++) target->columns[x] = ((size_t)(x / merge) * merge * merge + x % merge) * tile;
    return 0;
}

static int make_axis(Axis *axis, int size, int new_size, double scale) {
    const int most = (int)ceilf((float)(scale >= 1.0 ? 2.0 * scale : 2.0)) * 2 + 1;
    const int padded = (new_size + 3) & ~3; /* four new pixels are made at a time */
    double *exact = calloc((size_t)new_size * most, sizeof(double));
    axis->size = new_size;
    axis->first = calloc(padded, sizeof(int32_t));
    axis->weights = calloc((size_t)padded * (most + 1), sizeof(int16_t));
    if (!exact || !axis->first || !axis->weights) {
        free(exact);
        return OUT_OF_MEMORY;
    }
    const int taps = exact_weights(exact, most, axis->first, size, new_size, scale);
    axis->taps = (taps + 1) & ~1;
    double largest = 0.0;
    for (size_t i = 0; i < (size_t)new_size * most; i++) largest = exact[i] > largest ? exact[i] : largest;
    while (axis->precision < 22 && (int)(0.5 + largest * (1 << (axis->precision + 1))) < 1 << 15) axis->precision++;
    for (int i = 0; i < new_size; i++)
        for (int j = 0; j < taps; j++) {
            const double weight = exact[(size_t)i * most + j] * (1 << axis->precision);
            axis->weights[(size_t)i * axis->taps + j] = (int16_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
    free(exact);
    return 0;
}

#define LANES 2
#define VECTOR __m256i
#define OP(name) _mm256_##name
#define WHOLE(name) _mm256_##name##_si256
#define EACH(bytes) _mm256_broadcastsi128_si256(bytes)
#define NAME(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#include "fused_resize_lanes.h"

#define LANES 4
#define VECTOR __m512i
#define OP(name) _mm512_##name
#define WHOLE(name) _mm512_##name##_si512
#define EACH(bytes) _mm512_broadcast_i32x4(bytes)
#define NAME(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#include "fused_resize_lanes.h"

/* Rows that one call of `across` makes: 4 with AVX-512, 2 with AVX2; 0 where this CPU can do neither. */
int zephon_ft_lanes(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 4;
    return __builtin_cpu_supports("avx2") ? 2 : 0;
}

INLINE void move(uint8_t *to, const uint8_t *from, int size) {
    if (size < 16) {
        memcpy(to, from, size);
        return;
    }
    for (int i = 0; i + 16 <= size; i += 16)
        _mm_storeu_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
    _mm_storeu_si128((__m128i *)(to + size - 16), _mm_loadu_si128((const __m128i *)(from + size - 16)));
}

/* Ask for the memory of `count` rows from `y` on. */
static void fetch(const Target *target, int y, int count) {
    const size_t row = (size_t)3 * target->width;
    if (y + count > target->height) return;
    for (size_t i = 0; i < count * row; i += 64) __builtin_prefetch(target->memory + y * row + i, 1);
}

/* A finished row, upright but for mirroring, is cut to its tiles; `room` has space for it. */
static void put(const Target *target, int y, int mirror, const uint8_t *row, uint8_t *room) {
    const int piece = 3 * target->tile_width;
    if (mirror) {
        for (int x = 0; x < target->width; x++) memcpy(room + 3 * x, row + 3 * (target->width - 1 - x), 3);
        row = room;
    }
    uint8_t *to = target->memory + target->rows[y];
    for (int tile = 0; tile * target->tile_width < target->width; tile++, row += piece)
        move(to + target->columns[tile], row, piece);
}

/* `count` finished rows that lie on their side become `count` columns from `x` on, all in one tile. */
static void put_turned(const Target *target, int x, int count, int flip, int mirror, const uint8_t *band,
                       ptrdiff_t stride) {
    uint8_t *to = target->memory + target->columns[x / target->tile_width] + (size_t)(x % target->tile_width) * 3;
    uint8_t run[3 * BAND + 1];
    for (int y = 0; y < target->height; y++, band += 3) {
        for (int i = 0; i < count; i++) memcpy(run + 3 * i, band + (mirror ? count - 1 - i : i) * stride, 4);
        move(to + target->rows[flip ? target->height - 1 - y : y], run, 3 * count);
    }
}

/* See fused_resize.py. Sizes are of stored pixels, but for the tiles, which are of the upright image;
   `lanes` at most what zephon_ft_lanes says. Returns 0 or OUT_OF_MEMORY. Raise the number in its name when the arguments
   change, so that a library compiled before is not called with the wrong ones. */
int zephon_ft_resize_1(const uint8_t *from, int height, int width, uint8_t *to, int new_height, int new_width,
                       double scale_y, double scale_x, int orientation, int tile_height, int tile_width, int merge,
                       int lanes) {
    const int narrows = width != new_width, shortens = height != new_height, turns = orientation >= 5;
    const int flip = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    const int mirror = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    Target target = {.memory = to,
                     .height = turns ? new_width : new_height,
                     .width = turns ? new_height : new_width};
    Axis across = {0}, down = {0};
    const uint8_t **window = NULL;
    uint8_t *memory = NULL;
    int result = OUT_OF_MEMORY;
    if (narrows && make_axis(&across, width, new_width, scale_x)) goto end;
    if (shortens && make_axis(&down, height, new_height, scale_y)) goto end;
    if (make_target(&target, tile_height, tile_width, merge)) goto end;

    /* The last rows are read from a copy with space behind it. */
    const size_t row = (size_t)3 * width, behind = SPARE + 3 * (size_t)across.taps;
    const int copied = (size_t)height < behind / row + 1 ? height : (int)(behind / row + 1);
    const int most_held = !turns ? 1 : tile_width < BAND ? tile_width : BAND;
    const int slots = (shortens ? down.taps : 1) + lanes;
    const ptrdiff_t stride = ((size_t)3 * new_width + SPARE + 63) / 64 * 64;
    window = malloc(sizeof(*window) * (down.taps + 1));
    memory = malloc((slots + most_held + 1) * stride + copied * row + behind);
    if (!window || !memory) goto end;
    uint8_t *const ring = memory, *const band = ring + slots * stride, *const room = band + most_held * stride;
    uint8_t *const tail = room + stride;
    memcpy(tail, from + (height - copied) * row, copied * row);
    memset(tail + copied * row, 0, behind);

#define SOURCE(y) ((y) < height - copied ? from + (y) * row : tail + ((y) - (height - copied)) * row)
#define SLOT(y) (ring + (y) % slots * stride)
    /* A batch's memory is not in the cache. The rows of a block of tiles lie together, so their lines are asked for
       that many rows before they are written: bench/pixels.py. */
    const int block = tile_height * merge, ahead = block < BAND ? block : BAND;
    if (!turns) fetch(&target, 0, ahead);
    int narrowed = 0, held = 0;
    for (int y = 0; y < new_height; y++) {
        const int first = shortens ? down.first[y] : y;
        const int wanted = first + (shortens ? down.taps : 1), end = wanted < height ? wanted : height;
        for (; narrows && narrowed < end; narrowed += lanes) {
            const uint8_t *rows[4];
            uint8_t *outs[4];
            for (int i = 0; i < lanes; i++) {
                rows[i] = narrowed + i < height ? SOURCE(narrowed + i) : SOURCE(height - 1);
                outs[i] = SLOT(narrowed + i);
            }
            (lanes == 4 ? across_avx512 : across_avx2)(rows, outs, &across);
        }
        uint8_t *const done = band + held * stride;
        if (shortens) {
            for (int i = 0; i < down.taps; i++) {
                const int old = first + i < height ? first + i : height - 1;
                window[i] = narrows ? SLOT(old) : SOURCE(old);
            }
            (lanes == 4 ? down_avx512 : down_avx2)(window, &down, y, done, 3 * new_width);
        } else {
            memcpy(done, narrows ? SLOT(y) : SOURCE(y), (size_t)3 * new_width);
        }
        if (!turns) {
            fetch(&target, y + ahead, 1);
            put(&target, flip ? new_height - 1 - y : y, mirror, done, room);
            continue;
        }
        held++;
        if (held == most_held || (y + 1) % tile_width == 0 || y + 1 == new_height) {
            const int x = mirror ? new_height - 1 - y : y + 1 - held;
            put_turned(&target, x, held, flip, mirror, band, stride);
            held = 0;
        }
    }
    result = 0;
end:
    free(across.first);
    free(across.weights);
    free(down.first);
    free(down.weights);
    free(window);
    free(memory);
    free(target.rows);
    free(target.columns);
    return result;
}
