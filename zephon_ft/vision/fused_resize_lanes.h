/* The two passes of fused_resize.c for one width of vector register. Included once for each, with

     LANES   16-byte lanes in a register: 2 (AVX2) or 4 (AVX-512)
     VECTOR  the type of a register
     OP      its intrinsics: OP(add_epi32); WHOLE those that take a whole register: WHOLE(loadu)
     EACH    a register with the same 16 bytes in each lane
     NAME    makes the names of this width's functions
     TARGET  the attribute that allows its instructions

   Each lane works by itself: across, a lane is one row; down, it is 16 bytes of one row. */

TARGET INLINE VECTOR NAME(pair)(const int16_t *weights) {
    int32_t both;
    memcpy(&both, weights, 4);
    return OP(set1_epi32)(both);
}

/* 16 bytes of each of LANES rows. */
TARGET INLINE VECTOR NAME(gather)(const uint8_t *const *rows, ptrdiff_t at) {
#define LANE(i) _mm_loadu_si128((const __m128i *)(rows[i] + at))
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(LANE(0)), LANE(1), 1);
#if LANES == 2
    return low;
#else
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(LANE(2)), LANE(3), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#endif
#undef LANE
}

/* One new pixel of LANES rows: a lane holds the sums of red, green, blue and an unused fourth. */
TARGET INLINE VECTOR NAME(pixel)(const uint8_t *const *rows, ptrdiff_t at, const int16_t *weights, int pairs,
                                 VECTOR sum, VECTOR first_two, VECTOR next_two) {
    int pair = 0;
    for (; pair + 1 < pairs; pair += 2) {
        const VECTOR four = NAME(gather)(rows, at + 6 * pair);
        const VECTOR a = OP(shuffle_epi8)(four, first_two), b = OP(shuffle_epi8)(four, next_two);
        sum = OP(add_epi32)(sum, OP(madd_epi16)(a, NAME(pair)(weights + 2 * pair)));
        sum = OP(add_epi32)(sum, OP(madd_epi16)(b, NAME(pair)(weights + 2 * pair + 2)));
    }
    if (pair < pairs) {
        const VECTOR a = OP(shuffle_epi8)(NAME(gather)(rows, at + 6 * pair), first_two);
        sum = OP(add_epi32)(sum, OP(madd_epi16)(a, NAME(pair)(weights + 2 * pair)));
    }
    return sum;
}

TARGET INLINE void NAME(across_by)(const uint8_t *const *rows, uint8_t *const *to, const Axis *axis, int pairs) {
    const VECTOR first_two = EACH(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const VECTOR next_two = EACH(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const VECTOR close = EACH(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const VECTOR half = OP(set1_epi32)(1 << (axis->precision - 1));
    const __m128i shift = _mm_cvtsi32_si128(axis->precision);
    const int16_t *weights = axis->weights;
    for (int x = 0; x < axis->size; x += 4, weights += 8 * pairs) {
        VECTOR sums[4];
        for (int i = 0; i < 4; i++) {
            const ptrdiff_t at = 3 * (ptrdiff_t)axis->first[x + i];
            const int16_t *its = weights + 2 * pairs * i;
            sums[i] = OP(sra_epi32)(NAME(pixel)(rows, at, its, pairs, half, first_two, next_two), shift);
        }
        const VECTOR words[2] = {OP(packs_epi32)(sums[0], sums[1]), OP(packs_epi32)(sums[2], sums[3])};
        const VECTOR bytes = OP(shuffle_epi8)(OP(packus_epi16)(words[0], words[1]), close);
#define STORE(i, lane) _mm_storeu_si128((__m128i *)(to[i] + 3 * x), lane)
#if LANES == 2
        STORE(0, _mm256_castsi256_si128(bytes));
        STORE(1, _mm256_extracti128_si256(bytes, 1));
#else
        STORE(0, _mm512_castsi512_si128(bytes));
        STORE(1, _mm512_extracti32x4_epi32(bytes, 1));
        STORE(2, _mm512_extracti32x4_epi32(bytes, 2));
        STORE(3, _mm512_extracti32x4_epi32(bytes, 3));
#endif
#undef STORE
    }
}

/* LANES rows to their new width; writes up to 16 bytes more than a row. */
TARGET static void NAME(across)(const uint8_t *const *rows, uint8_t *const *to, const Axis *axis) {
    switch (axis->taps / 2) { /* the pairs of enlarging and of slight reduction, unrolled */
        case 2: NAME(across_by)(rows, to, axis, 2); break;
        case 3: NAME(across_by)(rows, to, axis, 3); break;
        default: NAME(across_by)(rows, to, axis, axis->taps / 2);
    }
}

TARGET INLINE void NAME(down_by)(const uint8_t *const *rows, const int16_t *weights, int precision, int pairs,
                                 uint8_t *to, int size) {
    const VECTOR half = OP(set1_epi32)(1 << (precision - 1)), zero = WHOLE(setzero)();
    const __m128i shift = _mm_cvtsi32_si128(precision);
    for (int x = 0; x < size; x += 16 * LANES) {
        VECTOR sums[4] = {half, half, half, half};
        for (int pair = 0; pair < pairs; pair++) {
            const VECTOR a = WHOLE(loadu)((const void *)(rows[2 * pair] + x));
            const VECTOR b = WHOLE(loadu)((const void *)(rows[2 * pair + 1] + x));
            const VECTOR both = NAME(pair)(weights + 2 * pair);
            const VECTOR low = OP(unpacklo_epi8)(a, b), high = OP(unpackhi_epi8)(a, b);
            sums[0] = OP(add_epi32)(sums[0], OP(madd_epi16)(OP(unpacklo_epi8)(low, zero), both));
            sums[1] = OP(add_epi32)(sums[1], OP(madd_epi16)(OP(unpackhi_epi8)(low, zero), both));
            sums[2] = OP(add_epi32)(sums[2], OP(madd_epi16)(OP(unpacklo_epi8)(high, zero), both));
            sums[3] = OP(add_epi32)(sums[3], OP(madd_epi16)(OP(unpackhi_epi8)(high, zero), both));
        }
        for (int i = 0; i < 4; i++) sums[i] = OP(sra_epi32)(sums[i], shift);
        const VECTOR words[2] = {OP(packs_epi32)(sums[0], sums[1]), OP(packs_epi32)(sums[2], sums[3])};
        WHOLE(storeu)((void *)(to + x), OP(packus_epi16)(words[0], words[1]));
    }
}

/* `axis->taps` rows to row `y` of the new ones; reads and writes up to a register more than a row. */
TARGET static void NAME(down)(const uint8_t *const *rows, const Axis *axis, int y, uint8_t *to, int size) {
    const int16_t *weights = axis->weights + (size_t)y * axis->taps;
    switch (axis->taps / 2) {
        case 2: NAME(down_by)(rows, weights, axis->precision, 2, to, size); break;
        case 3: NAME(down_by)(rows, weights, axis->precision, 3, to, size); break;
        default: NAME(down_by)(rows, weights, axis->precision, axis->taps / 2, to, size);
    }
}

#undef LANES
#undef VECTOR
#undef OP
#undef WHOLE
#undef EACH
#undef NAME
#undef TARGET
