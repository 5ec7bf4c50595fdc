/* SHA-256, as FIPS 180-4 defines it: with the processor's own instructions where it has them.

   The entries of a journal are short, some three blocks each: an object of hashlib's for each of them costs more than
   the hash itself. */

#ifndef PERDURE_SHA256_H
#define PERDURE_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define PERDURE_SHA_X86 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#define SHA256_BYTES 32
#define SHA256_BLOCK 64

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

typedef void (*sha256_compress)(uint32_t state[8], const uint8_t *block, size_t blocks);

static inline uint32_t
sha256_rotate(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

static void
sha256_compress_portable(uint32_t state[8], const uint8_t *block, size_t blocks)
{
    for (; blocks > 0; blocks--, block += SHA256_BLOCK) {
        uint32_t w[64], v[8];
        for (int i = 0; i < 16; i++) {
            w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16
                 | (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
        }
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            uint32_t s0 = sha256_rotate(a, 7) ^ sha256_rotate(a, 18) ^ a >> 3;
            uint32_t s1 = sha256_rotate(b, 17) ^ sha256_rotate(b, 19) ^ b >> 10;
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        memcpy(v, state, sizeof v);
        for (int i = 0; i < 64; i++) {
            uint32_t s1 = sha256_rotate(v[4], 6) ^ sha256_rotate(v[4], 11) ^ sha256_rotate(v[4], 25);
            uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
            uint32_t first = v[7] + s1 + choice + sha256_k[i] + w[i];
            uint32_t s0 = sha256_rotate(v[0], 2) ^ sha256_rotate(v[0], 13) ^ sha256_rotate(v[0], 22);
            uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            memmove(v + 1, v, 7 * sizeof v[0]);
            v[4] += first;
            v[0] = first + s0 + majority;
        }
        for (int i = 0; i < 8; i++) {
            state[i] += v[i];
        }
    }
}

#ifdef PERDURE_SHA_X86

/* The instructions want the eight words as ABEF and CDGH. */
__attribute__((target("sha,sse4.1"))) static void
sha256_compress_x86(uint32_t state[8], const uint8_t *block, size_t blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; blocks > 0; blocks--, block += SHA256_BLOCK) {
        __m128i abef_before = abef, cdgh_before = cdgh, w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), big_endian);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i k = _mm_loadu_si128((const __m128i *)(sha256_k + 4 * i));
            __m128i sum = _mm_add_epi32(w[i & 3], k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
            __m128i last = w[(i + 3) & 3];
            __m128i next = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
            next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
            w[i & 3] = _mm_sha256msg2_epu32(next, last);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int
sha256_has_instructions(void)
{
    unsigned int a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1)) {
        return 0;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

#endif

static sha256_compress
sha256_best(void)
{
#ifdef PERDURE_SHA_X86
    if (sha256_has_instructions()) {
        return sha256_compress_x86;
    }
#endif
    return sha256_compress_portable;
}

/* The digest of `head`, which is shorter than two blocks, followed by `tail`. */
static void
sha256_of_two(sha256_compress compress, const uint8_t *head, size_t head_size, const uint8_t *tail,
              size_t tail_size, uint8_t digest[SHA256_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t block[4 * SHA256_BLOCK];
    uint64_t bits = 8 * (uint64_t)(head_size + tail_size);
    size_t fill = (SHA256_BLOCK - head_size % SHA256_BLOCK) % SHA256_BLOCK;
    if (fill > tail_size) {
        fill = tail_size;
    }
    memcpy(block, head, head_size);
    memcpy(block + head_size, tail, fill);
    size_t size = head_size + fill;
    tail += fill;
    tail_size -= fill;
    if (size % SHA256_BLOCK == 0) {
        compress(state, block, size / SHA256_BLOCK);
        compress(state, tail, tail_size / SHA256_BLOCK);
        size = tail_size % SHA256_BLOCK;
        memcpy(block, tail + tail_size - size, size);
    }
    block[size++] = 0x80;
    size_t padded = (size + 8 + SHA256_BLOCK - 1) / SHA256_BLOCK * SHA256_BLOCK;
    memset(block + size, 0, padded - size - 8);
    for (int i = 0; i < 8; i++) {
        block[padded - 1 - i] = (uint8_t)(bits >> 8 * i);
    }
    compress(state, block, padded / SHA256_BLOCK);
    for (int i = 0; i < SHA256_BYTES; i++) {
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

#endif
