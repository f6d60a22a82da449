#include "fg_math.h"

__extension__ typedef unsigned __int128 fg_u128;

/* log2(1 + i / 256) and 2^(-i / 64), Q32, rounded to nearest. */
static const uint64_t fg_log2_table[257] = {
    0x0u, 0x1709c47u, 0x2dfca17u, 0x44d8c46u, 0x5b9e5a1u, 0x724d8efu, 0x88e68ebu, 0x9f6984au,
    0xb5d69bbu, 0xcc2dfe2u, 0xe26fd5du, 0xf89c4c2u, 0x10eb38a0u, 0x124b5b7eu, 0x13aa2fddu, 0x1507b836u,
    0x1663f6fbu, 0x17beee97u, 0x1918a16eu, 0x1a7111dfu, 0x1bc84241u, 0x1d1e34e3u, 0x1e72ec11u, 0x1fc66a0fu,
    0x2118b11au, 0x2269c369u, 0x23b9a32fu, 0x25085296u, 0x2655d3c5u, 0x27a228dbu, 0x28ed53f3u, 0x2a375721u,
    0x2b803474u, 0x2cc7edf6u, 0x2e0e85aau, 0x2f53fd90u, 0x309857a0u, 0x31db95d0u, 0x331dba0fu, 0x345ec646u,
    0x359ebc5bu, 0x36dd9e2fu, 0x381b6d9cu, 0x39582c79u, 0x3a93dc98u, 0x3bce7fc7u, 0x3d0817cfu, 0x3e40a672u,
    0x3f782d72u, 0x40aeae89u, 0x41e42b6fu, 0x4318a5d5u, 0x444c1f6bu, 0x457e99dbu, 0x46b016cau, 0x47e097dbu,
    0x49101eacu, 0x4a3eacd7u, 0x4b6c43f1u, 0x4c98e58eu, 0x4dc4933bu, 0x4eef4e83u, 0x501918ecu, 0x5141f3fbu,
    0x5269e12fu, 0x5390e204u, 0x54b6f7f1u, 0x55dc246du, 0x570068e8u, 0x5823c6d1u, 0x59463f92u, 0x5a67d492u,
    0x5b888736u, 0x5ca858dfu, 0x5dc74aeau, 0x5ee55eb1u, 0x6002958cu, 0x611ef0cfu, 0x623a71ccu, 0x635519cfu,
    0x646eea24u, 0x6587e415u, 0x66a008e4u, 0x67b759d6u, 0x68cdd82au, 0x69e3851cu, 0x6af861e6u, 0x6c0c6fc0u,
    0x6d1fafddu, 0x6e322370u, 0x6f43cba8u, 0x7054a9b1u, 0x7164beb5u, 0x72740bdbu, 0x73829249u, 0x74905320u,
    0x759d4f81u, 0x76a98888u, 0x77b4ff51u, 0x78bfb4f4u, 0x79c9aa88u, 0x7ad2e11fu, 0x7bdb59cdu, 0x7ce3159fu,
    0x7dea15a3u, 0x7ef05ae4u, 0x7ff5e66au, 0x80fab93cu, 0x81fed45du, 0x830238d0u, 0x8404e794u, 0x8506e1a8u,
    0x86082807u, 0x8708bbaau, 0x88089d8bu, 0x8907ce9du, 0x8a064fd5u, 0x8b042225u, 0x8c01467cu, 0x8cfdbdc8u,
    0x8df988f5u, 0x8ef4a8edu, 0x8fef1e98u, 0x90e8eadeu, 0x91e20ea1u, 0x92da8ac6u, 0x93d2602cu, 0x94c98fb4u,
    0x95c01a3au, 0x96b6009bu, 0x97ab43afu, 0x989fe451u, 0x9993e356u, 0x9a874193u, 0x9b79ffdbu, 0x9c6c1f01u,
    0x9d5d9fd5u, 0x9e4e8325u, 0x9f3ec9bdu, 0xa02e746au, 0xa11d83f5u, 0xa20bf926u, 0xa2f9d4c5u, 0xa3e71797u,
    0xa4d3c25eu, 0xa5bfd5dfu, 0xa6ab52dau, 0xa7963a0du, 0xa8808c38u, 0xa96a4a17u, 0xaa537465u, 0xab3c0bdcu,
    0xac241135u, 0xad0b8526u, 0xadf26866u, 0xaed8bba8u, 0xafbe7fa1u, 0xb0a3b502u, 0xb1885c7bu, 0xb26c76bcu,
    0xb3500472u, 0xb433064bu, 0xb5157cf3u, 0xb5f76913u, 0xb6d8cb54u, 0xb7b9a45eu, 0xb899f4d9u, 0xb979bd69u,
    0xba58feb2u, 0xbb37b959u, 0xbc15edffu, 0xbcf39d45u, 0xbdd0c7cau, 0xbead6e2du, 0xbf89910cu, 0xc0653103u,
    0xc1404eaeu, 0xc21aeaa6u, 0xc2f50586u, 0xc3ce9fe4u, 0xc4a7ba58u, 0xc5805579u, 0xc65871dau, 0xc7301011u,
    0xc80730b0u, 0xc8ddd449u, 0xc9b3fb6du, 0xca89a6acu, 0xcb5ed695u, 0xcc338bb7u, 0xcd07c69eu, 0xcddb87d6u,
    0xceaecfebu, 0xcf819f66u, 0xd053f6d2u, 0xd125d6b7u, 0xd1f73f9cu, 0xd2c83209u, 0xd398ae81u, 0xd468b58cu,
    0xd53847acu, 0xd6076565u, 0xd6d60f39u, 0xd7a445a9u, 0xd8720936u, 0xd93f5a60u, 0xda0c39a5u, 0xdad8a784u,
    0xdba4a47bu, 0xdc703104u, 0xdd3b4d9du, 0xde05fac0u, 0xded038e6u, 0xdf9a088au, 0xe0636a24u, 0xe12c5e2bu,
    0xe1f4e517u, 0xe2bcff5eu, 0xe384ad75u, 0xe44befd0u, 0xe512c6e5u, 0xe5d93326u, 0xe69f3506u, 0xe764ccf7u,
    0xe829fb69u, 0xe8eec0ceu, 0xe9b31d94u, 0xea77122bu, 0xeb3a9f02u, 0xebfdc485u, 0xecc08322u, 0xed82db45u,
    0xee44cd5au, 0xef0659ccu, 0xefc78104u, 0xf088436du, 0xf148a170u, 0xf2089b75u, 0xf2c831e4u, 0xf3876524u,
    0xf446359bu, 0xf504a3afu, 0xf5c2afc6u, 0xf6805a44u, 0xf73da38eu, 0xf7fa8c05u, 0xf8b7140fu, 0xf9733c0cu,
    0xfa2f045eu, 0xfaea6d67u, 0xfba57787u, 0xfc60231eu, 0xfd1a708cu, 0xfdd4602eu, 0xfe8df264u, 0xff47278bu,
    0x100000000,
};
static const uint64_t fg_exp2_table[65] = {
    0x100000000, 0xfd3e0c0du, 0xfa83b2dbu, 0xf7d0df73u, 0xf5257d15u, 0xf281773cu, 0xefe4b99cu, 0xed4f301fu,
    0xeac0c6e8u, 0xe8396a50u, 0xe5b906e7u, 0xe33f8973u, 0xe0ccdeecu, 0xde60f482u, 0xdbfbb798u, 0xd99d15c2u,
    0xd744fccbu, 0xd4f35aacu, 0xd2a81d92u, 0xd06333dbu, 0xce248c15u, 0xcbec14ffu, 0xc9b9bd86u, 0xc78d74c9u,
    0xc5672a11u, 0xc346ccdau, 0xc12c4ccau, 0xbf1799b6u, 0xbd08a39fu, 0xbaff5ab2u, 0xb8fbaf47u, 0xb6fd91e3u,
    0xb504f334u, 0xb311c413u, 0xb123f582u, 0xaf3b78adu, 0xad583eeau, 0xab7a39b6u, 0xa9a15ab5u, 0xa7cd93b5u,
    0xa5fed6aau, 0xa43515aeu, 0xa2704303u, 0xa0b05110u, 0x9ef53261u, 0x9d3ed9a7u, 0x9b8d39bau, 0x99e04593u,
    0x9837f052u, 0x96942d37u, 0x94f4efa9u, 0x935a2b2fu, 0x91c3d374u, 0x9031dc43u, 0x8ea4398bu, 0x8d1adf5bu,
    0x8b95c1e4u, 0x8a14d575u, 0x88980e81u, 0x871f6197u, 0x85aac368u, 0x843a28c4u, 0x82cd8699u, 0x8164d1f4u,
    0x80000000u,
};

/* hi:lo / d for hi < d, by two 32-bit digits: no 128-bit division, which would be a library call. */
static uint64_t div128(uint64_t hi, uint64_t lo, uint64_t d, uint64_t *rest) {
  unsigned shift = (unsigned)__builtin_clzll(d);
  d <<= shift;
  if (shift > 0) {
    hi = hi << shift | lo >> (64 - shift);
    lo <<= shift;
  }
  uint64_t dh = d >> 32, dl = d & UINT32_MAX;
  uint64_t quotient = 0;
  for (int i = 0; i < 2; i++) {
    uint64_t next = i == 0 ? lo >> 32 : lo & UINT32_MAX;
    uint64_t digit = hi / dh, r = hi % dh;
    while (digit > UINT32_MAX || digit * dl > (r << 32 | next)) {
      digit--;
      r += dh;
      if (r > UINT32_MAX) {
        break;
      }
    }
    hi = (hi << 32 | next) - digit * d; /* wraps back into range */
    quotient = quotient << 32 | digit;
  }
  *rest = hi >> shift;
  return quotient;
}

static uint64_t mul_div(uint64_t a, uint64_t b, uint64_t d, uint64_t *rest) {
  fg_u128 product = (fg_u128)a * b;
  uint64_t hi = (uint64_t)(product >> 64), lo = (uint64_t)product;
  d = d != 0 ? d : 1;
  if (hi == 0) {
    *rest = lo % d;
    return lo / d;
  }
  if (hi >= d) {
    *rest = 0;
    return UINT64_MAX;
  }
  return div128(hi, lo, d, rest);
}

uint64_t fg_mul_div(uint64_t a, uint64_t b, uint64_t d) {
  uint64_t rest;
  return mul_div(a, b, d, &rest);
}

uint64_t fg_mul_div_ceil(uint64_t a, uint64_t b, uint64_t d) {
  uint64_t rest;
  uint64_t q = mul_div(a, b, d, &rest);
  return rest != 0 && q != UINT64_MAX ? q + 1 : q;
}

int fg_mul_cmp(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  fg_u128 left = (fg_u128)a * b, right = (fg_u128)c * d;
  return left < right ? -1 : left > right;
}

int64_t fg_priced_nusd(uint64_t tokens, uint64_t price) {
  uint64_t sum;
  uint64_t cost = !__builtin_mul_overflow(tokens, price, &sum) && sum <= UINT64_MAX - FG_PPM ? (sum + FG_PPM - 1) / FG_PPM
                                                                                             : fg_mul_div_ceil(tokens, price, FG_PPM);
  return cost > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)cost;
}

uint64_t fg_log2_q32(uint64_t x) {
  x = x != 0 ? x : 1;
  unsigned e = 63 - (unsigned)__builtin_clzll(x);
  uint64_t m = x << (63 - e);
  uint64_t i = m >> 55 & 0xff;
  uint64_t part = m << 9 >> 32; /* 32 bits below the table's index */
  uint64_t low = fg_log2_table[i];
  return ((uint64_t)e << 32) + low + ((fg_log2_table[i + 1] - low) * part >> 32);
}

uint64_t fg_neglog2_q32(uint64_t h) { return h == UINT64_MAX ? 0 : (UINT64_C(64) << 32) - fg_log2_q32(h + 1); }

uint64_t fg_exp2_neg_q32(uint64_t x) {
  uint64_t whole = x >> 32;
  if (whole > 32) {
    return 0;
  }
  uint64_t part = x & UINT32_MAX;
  uint64_t i = part >> 26;
  uint64_t high = fg_exp2_table[i];
  uint64_t v = high - ((high - fg_exp2_table[i + 1]) * (part & 0x3ffffff) >> 26);
  return v >> whole;
}

uint64_t fg_isqrt(uint64_t x) {
  uint64_t root = 0;
  for (int bit = 31; bit >= 0; bit--) {
    uint64_t next = root | UINT64_C(1) << bit;
    if (next * next <= x) {
      root = next;
    }
  }
  return root;
}

uint64_t fg_mix64(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static const uint64_t fg_golden = UINT64_C(0x9e3779b97f4a7c15);

uint64_t fg_hash64(uint64_t seed, const void *bytes, uint64_t len) {
  const unsigned char *p = bytes;
  uint64_t h = fg_mix64(seed + fg_golden) ^ len * fg_golden;
  while (len > 0) {
    uint64_t n = len < 8 ? len : 8;
    uint64_t w = 0; /* little-endian on every machine */
    for (uint64_t i = n; i > 0; i--) {
      w = w << 8 | p[i - 1];
    }
    h = fg_mix64(h ^ w) + fg_golden;
    p += n;
    len -= n;
  }
  return fg_mix64(h);
}

uint64_t fg_rand(uint64_t seed, uint64_t stream, uint64_t n) {
  return fg_mix64(fg_mix64(fg_mix64(seed + fg_golden) ^ stream) + (n + 1) * fg_golden);
}

uint64_t fg_uniform(uint64_t rand, uint64_t bound) { return (uint64_t)((fg_u128)rand * bound >> 64); }
