/* Lookup of member names and upkeep of the path while scanning. */
#include "fg_keys.h"

#define KEY_TEXT(N, w) w,
#define KEY_LEN(N, w) (uint8_t)(sizeof(w) - 1),
static const char *const key_text[FG_K_COUNT] = {"", FG_KEY_MAP(KEY_TEXT)};
static const uint8_t key_len[FG_K_COUNT] = {0, FG_KEY_MAP(KEY_LEN)};

uint32_t fg_key(const char *name, uint32_t len) {
  char b[FG_KEY_LEN_MAX];
  uint32_t n = 0;
  for (uint32_t i = 0; i < len; i++) {
    if (name[i] == '_' || name[i] == '-') {
      continue;
    }
    if (n == sizeof b) {
      return FG_K_NONE;
    }
    b[n++] = fg_lower(name[i]);
  }
  uint32_t lo = 1, hi = FG_K_COUNT; /* the first name of this length */
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (key_len[mid] < n) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  for (; lo < FG_K_COUNT && key_len[lo] == n; lo++) {
    uint32_t k = 0; /* short words: cheaper than a call */
    while (k < n && key_text[lo][k] == b[k]) {
      k++;
    }
    if (k == n) {
      return lo;
    }
  }
  return FG_K_NONE;
}

void fg_path_init(fg_path *p) { memset(p, 0, sizeof *p); }

static void rebuild(fg_path *p) {
  p->path = 0;
  for (uint32_t i = 0; i < p->depth; i++) {
    if (p->name[i] != FG_K_ELEMENT) {
      p->path = p->path << 8 | p->name[i];
    }
  }
}

void fg_path_step(fg_path *p, const fg_scan_event *e) {
  switch (e->what) {
  case FG_SCAN_KEY:
    p->latest = (uint8_t)(e->cut ? FG_K_NONE : fg_key(e->text.ptr, e->text.len));
    p->depth = (uint8_t)e->depth;
    p->name[e->depth - 1] = p->latest == FG_K_NONE ? (uint8_t)FG_K_OTHER : p->latest;
    rebuild(p);
    break;
  case FG_SCAN_BEGIN_ARRAY:
  case FG_SCAN_BEGIN_OBJECT:
    p->depth = (uint8_t)e->depth;
    rebuild(p);
    p->name[e->depth] = FG_K_ELEMENT; /* until a key comes, or for good in an array */
    p->depth = (uint8_t)(e->depth + 1);
    break;
  case FG_SCAN_END_ARRAY:
  case FG_SCAN_END_OBJECT:
    p->depth = (uint8_t)e->depth;
    rebuild(p);
    break;
  default:
    break; /* a scalar: the path stands as its key, or its array, left it */
  }
}
