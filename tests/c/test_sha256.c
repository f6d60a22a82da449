/* SHA-256 against the published examples, and cut anywhere. */
#include "fg_test.h"

#include "fg_sha256.h"

static void text_of(const char *bytes, uint64_t len, uint64_t piece, char *out) {
  fg_sha256 s;
  fg_sha256_init(&s);
  for (uint64_t at = 0; at < len; at += piece) {
    fg_sha256_add(&s, bytes + at, len - at < piece ? len - at : piece);
  }
  fg_sha256_text(&s, out);
}

int main(void) {
  static const struct { const char *text, *want; } KNOWN[] = {
      {"", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
       "sha256:cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
  char got[80], again[80];
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
    text_of(KNOWN[i].text, strlen(KNOWN[i].text), 1000, got);
    FG_EQ_STR(got, KNOWN[i].want);
  }
  static char million[1000000];
  memset(million, 'a', sizeof million);
  text_of(million, sizeof million, 4096, got);
  FG_EQ_STR(got, "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (uint64_t len = 0; len < 200; len++) { /* every length around the padding's edges, in every small piece */
    text_of(million, len, 1000, got);
    for (uint64_t piece = 1; piece < 70; piece += 9) {
      text_of(million, len, piece, again);
      FG_EQ_STR(again, got);
    }
  }
  return fg_test_end("sha256");
}
