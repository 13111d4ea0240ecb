/* RMSNorm of rows of floats or doubles, with or without a residual sum in front, forward and backward.

   Plain C with nothing but libm, called with addresses (see native.py). The order of every sum depends on `dim` alone, so
   a row gives the same bits alone, in a batch, and on any number of threads. Rows whose `mask` byte is 0 are not read;
   their results are 0. Pointers that a caller does not need are NULL.

   This file includes itself once per type: REAL is the type, NAME(x) the name with its suffix. */

#ifndef REAL

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 64          /* running sums per row: enough for the widest vectors, a few at a time */
#define BLOCK_ROWS 128    /* rows per piece of work, and per partial gradient of the weight */

typedef void (*parallel_for)(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

/* Work on blocks of rows: threads take the next one until none is left. */
typedef struct {
    void (*run)(const void *task, int64_t first, int64_t last, int64_t block);
    const void *task;
    int64_t rows, next;
} blocks_t;

static void take_blocks(void *data) {
    blocks_t *blocks = data;
    for (;;) {
        int64_t block = __atomic_fetch_add(&blocks->next, 1, __ATOMIC_RELAXED);
        int64_t first = block * BLOCK_ROWS, last = first + BLOCK_ROWS;
        if (first >= blocks->rows) return;
        blocks->run(blocks->task, first, last < blocks->rows ? last : blocks->rows, block);
    }
}

static void run_blocks(blocks_t blocks, parallel_for parallel, int64_t num_threads) {
    if (parallel && num_threads > 1 && blocks.rows > BLOCK_ROWS) parallel(take_blocks, &blocks, num_threads, 0);
    else take_blocks(&blocks);
}

int64_t diarnorm_block_rows(void) { return BLOCK_ROWS; }

#define REAL float
#define ROOT sqrtf
#define NAME(x) x##_f32
#include __FILE__
#undef REAL
#undef ROOT
#undef NAME

#define REAL double
#define ROOT sqrt
#define NAME(x) x##_f64
#include __FILE__

#else

typedef struct {
    REAL *y, *r, *rstd;
    const REAL *x, *residual, *weight;
    const uint8_t *mask;
    REAL alpha, eps;
    int64_t dim;
} NAME(forward_t);

typedef struct {
    REAL *dx, *dresidual, *partial;
    const REAL *dy, *dr, *x, *weight, *rstd;
    const uint8_t *mask;
    REAL alpha;
    int64_t dim;
} NAME(backward_t);

static inline REAL NAME(fold)(REAL *sums) {
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
    return sums[0];
}

static inline REAL NAME(sum_of_squares)(const REAL *restrict x, int64_t dim) {
    REAL sums[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += x[i + lane] * x[i + lane];
    for (int lane = 0; i + lane < dim; lane++) sums[lane] += x[i + lane] * x[i + lane];
    return NAME(fold)(sums);
}

static inline REAL NAME(sum_of_products)(const REAL *restrict a, const REAL *restrict b, const REAL *restrict c,
                                         int64_t dim) {
    REAL sums[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += a[i + lane] * b[i + lane] * c[i + lane];
    for (int lane = 0; i + lane < dim; lane++) sums[lane] += a[i + lane] * b[i + lane] * c[i + lane];
    return NAME(fold)(sums);
}

static inline REAL NAME(normalise)(REAL *restrict y, const REAL *restrict x, const REAL *restrict weight, REAL eps,
                                   int64_t dim) {
    REAL rstd = 1 / ROOT(NAME(sum_of_squares)(x, dim) / dim + eps);
    for (int64_t i = 0; i < dim; i++) y[i] = x[i] * rstd * weight[i];
    return rstd;
}

static inline void NAME(add)(REAL *restrict r, const REAL *restrict x, const REAL *restrict residual, REAL alpha,
                             int64_t dim) {
    for (int64_t i = 0; i < dim; i++) r[i] = residual[i] + alpha * x[i];
}

static void NAME(forward_rows)(const void *task, int64_t first, int64_t last, int64_t block) {
    const NAME(forward_t) t = *(const NAME(forward_t) *)task;
    (void)block;
    for (int64_t row = first; row < last; row++) {
        int64_t at = row * t.dim;
        REAL rstd = 0;
        if (t.mask && !t.mask[row]) {
            memset(t.y + at, 0, t.dim * sizeof(REAL));
            if (t.r) memset(t.r + at, 0, t.dim * sizeof(REAL));
        } else if (t.r) {
            NAME(add)(t.r + at, t.x + at, t.residual + at, t.alpha, t.dim);
            rstd = NAME(normalise)(t.y + at, t.r + at, t.weight, t.eps, t.dim);
        } else {
            rstd = NAME(normalise)(t.y + at, t.x + at, t.weight, t.eps, t.dim);
        }
        if (t.rstd) t.rstd[row] = rstd;
    }
}

/* With g = dy * weight and n = x * rstd: dx = rstd * (g - n * mean(g * n)), plus dr; dweight = sum over rows of dy * n. */
static void NAME(backward_rows)(const void *task, int64_t first, int64_t last, int64_t block) {
    const NAME(backward_t) t = *(const NAME(backward_t) *)task;
    REAL *restrict partial = t.partial + block * t.dim;
    const REAL *restrict weight = t.weight;
    memset(partial, 0, t.dim * sizeof(REAL));
    for (int64_t row = first; row < last; row++) {
        int64_t at = row * t.dim;
        REAL *restrict dx = t.dx + at;
        const REAL *restrict dy = t.dy + at, *restrict x = t.x + at;
        if (t.mask && !t.mask[row]) {
            memset(dx, 0, t.dim * sizeof(REAL));
            if (t.dresidual) memset(t.dresidual + at, 0, t.dim * sizeof(REAL));
            continue;
        }
        REAL rstd = t.rstd[row];
        REAL pull = rstd * rstd * rstd * (NAME(sum_of_products)(dy, weight, x, t.dim) / t.dim);
        for (int64_t i = 0; i < t.dim; i++) {
            partial[i] += dy[i] * (x[i] * rstd);
            dx[i] = dy[i] * weight[i] * rstd - x[i] * pull;
        }
        if (t.dresidual) {
            REAL *restrict dresidual = t.dresidual + at;
            const REAL *restrict dr = t.dr + at;
            for (int64_t i = 0; i < t.dim; i++) {
                dresidual[i] = dx[i] + dr[i];
                dx[i] = t.alpha * dresidual[i];
            }
        }
    }
}

/* y = x * weight / sqrt(mean(x^2) + eps): a few rows, nothing kept for the backward pass. */
void NAME(diarnorm_rms)(REAL *y, const REAL *x, const REAL *weight, REAL eps, int64_t rows, int64_t dim) {
    for (int64_t row = 0; row < rows; row++) NAME(normalise)(y + row * dim, x + row * dim, weight, eps, dim);
}

/* r = residual + alpha * x where `r` is given; y = normalised r (or x); rstd per row where `rstd` is given. */
void NAME(diarnorm_forward)(REAL *y, REAL *r, REAL *rstd, const REAL *x, const REAL *residual, const REAL *weight,
                            const uint8_t *mask, REAL alpha, REAL eps, int64_t rows, int64_t dim,
                            parallel_for parallel, int64_t num_threads) {
    NAME(forward_t) task = {y, r, rstd, x, residual, weight, mask, alpha, eps, dim};
    run_blocks((blocks_t){NAME(forward_rows), &task, rows, 0}, parallel, num_threads);
}

/* `x` is what was normalised. `partial` [blocks, dim] gets one gradient of the weight per BLOCK_ROWS rows. */
void NAME(diarnorm_backward)(REAL *dx, REAL *dresidual, REAL *partial, const REAL *dy, const REAL *dr, const REAL *x,
                             const REAL *weight, const REAL *rstd, const uint8_t *mask, REAL alpha, int64_t rows,
                             int64_t dim, parallel_for parallel, int64_t num_threads) {
    NAME(backward_t) task = {dx, dresidual, partial, dy, dr, x, weight, rstd, mask, alpha, dim};
    run_blocks((blocks_t){NAME(backward_rows), &task, rows, 0}, parallel, num_threads);
}

#endif
