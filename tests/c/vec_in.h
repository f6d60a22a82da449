/* From a step's `in` to the structs of the public header. Everything borrowed points into the document or the vec_in. */
#ifndef VEC_IN_H
#define VEC_IN_H

#include "vec_json.h"

enum { VEC_HEADERS = 64, VEC_TOOL_CALLS = 64 };

typedef struct vec_in { /* storage of one step */
  fg_str tools[FG_TOOLS_MAX];
  fg_header headers[VEC_HEADERS];
  fg_tool_call tool_calls[VEC_TOOL_CALLS];
} vec_in;

static void vec_request_tools(vec_fault *f, const cJSON *in, vec_in *store, fg_request *r) {
  const cJSON *list = vec_get(in, "tools"), *item, *choice = vec_get(in, "tool_choice");
  uint32_t i;
  if (list != NULL && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > FG_TOOLS_MAX)) {
    vec_bad(f, "tools is not a list of at most %d names", (int)FG_TOOLS_MAX);
    return;
  }
  cJSON_ArrayForEach(item, list) store->tools[r->tool_count++] = vec_text(f, item, "tools");
  r->tools = store->tools;
  if (choice == NULL) {
    return;
  }
  if (!cJSON_IsString(choice)) {
    vec_bad(f, "tool_choice is not the name of a tool");
    return;
  }
  for (i = 0; i < r->tool_count; i++) {
    if (store->tools[i].ptr != NULL && strcmp(store->tools[i].ptr, choice->valuestring) == 0) {
      r->tool_choice = i + 1;
    }
  }
  if (r->tool_choice == 0) {
    vec_bad(f, "tool_choice \"%s\" is not in tools", choice->valuestring);
  }
}

static void vec_request(vec_fault *f, const cJSON *in, const char *call, vec_in *store, fg_request *r) {
  const cJSON *stream = vec_get(in, "stream"), *prior = vec_get(in, "prior");
  memset(r, 0, sizeof *r);
  r->size = sizeof *r;
  vec_only(f, in, "begin",
           "workflow prompt_tokens max_output_tokens request_bytes stream delivery features tools tool_choice data_class region tenant "
           "affinity account server_state unable max_wait_ms prior language");
  r->call_id.ptr = call;
  r->call_id.len = (uint32_t)strlen(call);
  r->workflow = vec_str(f, in, "workflow");
  r->tenant = vec_str(f, in, "tenant");
  r->affinity = vec_str(f, in, "affinity");
  r->account = vec_str(f, in, "account");
  r->data_class = vec_str(f, in, "data_class");
  r->region = vec_str(f, in, "region");
  r->language = vec_str(f, in, "language");
  r->prompt_tokens = vec_u32(f, in, "prompt_tokens");
  r->max_output_tokens = vec_u32(f, in, "max_output_tokens");
  r->request_bytes = vec_u32(f, in, "request_bytes");
  r->max_wait_ms = vec_u32(f, in, "max_wait_ms");
  r->unable = vec_bits(f, in, "unable", FG_TABLE_UNABLE);
  r->features = vec_bits(f, in, "features", FG_TABLE_FEATURE);
  r->delivery = vec_word(f, vec_get(in, "delivery"), "delivery", FG_TABLE_DELIVERY);
  r->server_state = vec_word(f, vec_get(in, "server_state"), "server_state", FG_TABLE_SERVER_STATE);
  if (cJSON_IsFalse(stream)) {
    r->stream = FG_STREAM_NO;
  } else if (cJSON_IsString(stream)) {
    r->stream = vec_word(f, stream, "stream", FG_TABLE_STREAM);
  } else if (stream != NULL && !cJSON_IsTrue(stream)) {
    vec_bad(f, "stream is not true, false or \"impossible\"");
  }
  vec_request_tools(f, in, store, r);
  vec_only(f, prior, "prior", "attempts tokens cost_nusd");
  r->prior_attempts = vec_u32(f, prior, "attempts");
  r->prior_tokens = vec_u32(f, prior, "tokens");
  r->prior_cost_nusd = vec_int(f, prior, "cost_nusd", 0, INT64_C(9007199254740992));
}

static void vec_headers(vec_fault *f, const cJSON *in, vec_in *store, fg_evidence *e) {
  const cJSON *headers = vec_get(in, "headers"), *item;
  if (headers == NULL) {
    return;
  }
  if (!cJSON_IsObject(headers) || cJSON_GetArraySize(headers) > VEC_HEADERS) {
    vec_bad(f, "headers is not an object of at most %d", (int)VEC_HEADERS);
    return;
  }
  cJSON_ArrayForEach(item, headers) {
    fg_header *h = &store->headers[e->header_count++];
    h->name.ptr = item->string;
    h->name.len = (uint32_t)strlen(item->string);
    h->value = vec_text(f, item, item->string);
  }
  e->headers = store->headers;
}

static void vec_progress(vec_fault *f, const cJSON *progress, fg_evidence *e) {
  vec_only(f, progress, "progress", "visible lifecycle reasoning tool_args_bytes terminal last_byte_ms last_progress_ms");
  if (progress == NULL) {
    return;
  }
  e->flags |= FG_EV_PROGRESS;
  e->visible = vec_u32(f, progress, "visible");
  e->lifecycle = vec_u32(f, progress, "lifecycle");
  e->reasoning = vec_u32(f, progress, "reasoning");
  e->tool_args_bytes = vec_u32(f, progress, "tool_args_bytes");
  e->terminal = vec_word(f, vec_get(progress, "terminal"), "terminal", FG_TABLE_FINISH);
  e->last_byte_ms = vec_u32(f, progress, "last_byte_ms");
  e->last_progress_ms = vec_u32(f, progress, "last_progress_ms");
}

static void vec_evidence(vec_fault *f, const cJSON *in, vec_in *store, fg_evidence *e) {
  const cJSON *transport = vec_get(in, "transport"), *origin = vec_get(in, "origin");
  memset(e, 0, sizeof *e);
  e->size = sizeof *e;
  vec_only(f, in, "evidence",
           "provider api phase status headers body transport elapsed_ms progress inner_attempts origin client_gone timeout whole_body "
           "unix_ms attempt");
  e->provider = vec_str(f, in, "provider");
  e->api = vec_str(f, in, "api");
  e->phase = vec_word(f, vec_get(in, "phase"), "phase", FG_TABLE_PHASE);
  e->status = (int32_t)vec_int(f, in, "status", 0, 999);
  e->body = vec_str(f, in, "body");
  e->elapsed_ms = vec_u32(f, in, "elapsed_ms");
  e->inner_attempts = vec_u32(f, in, "inner_attempts");
  e->unix_ms = vec_int(f, in, "unix_ms", 0, INT64_C(9007199254740992));
  e->timeout = vec_word(f, vec_get(in, "timeout"), "timeout", FG_TABLE_KIND);
  vec_headers(f, in, store, e);
  vec_only(f, cJSON_IsNull(transport) ? NULL : transport, "transport", "lib kind code message");
  e->lib = vec_str(f, transport, "lib");
  e->kind = vec_str(f, transport, "kind");
  e->message = vec_str(f, transport, "message");
  e->code = (int32_t)vec_int(f, transport, "code", INT32_MIN, INT32_MAX);
  vec_progress(f, vec_get(in, "progress"), e);
  if (origin != NULL && (!cJSON_IsString(origin) || (strcmp(origin->valuestring, "local") != 0 && strcmp(origin->valuestring, "upstream") != 0))) {
    vec_bad(f, "origin is not \"upstream\" or \"local\"");
  } else if (origin != NULL && strcmp(origin->valuestring, "local") == 0) {
    e->flags |= FG_EV_LOCAL;
  }
  if (vec_flag(f, in, "client_gone") != 0) {
    e->flags |= FG_EV_CLIENT_GONE;
  }
  if (vec_flag(f, in, "whole_body") != 0) {
    e->flags |= FG_EV_WHOLE_BODY;
  }
}

/* Usage of a success or a usage event; `final` is what the vector says, else `final_default`. */
static void vec_usage(vec_fault *f, const cJSON *in, fg_answer *a, int final_default) {
  memset(a, 0, sizeof *a);
  a->size = sizeof *a;
  a->prompt_tokens = vec_u32(f, in, "prompt_tokens");
  a->cached_tokens = vec_u32(f, in, "cached_tokens");
  a->output_tokens = vec_u32(f, in, "output_tokens");
  a->cost_nusd = vec_usd(f, in, "cost_usd");
  if (vec_get(in, "final") != NULL) {
    final_default = vec_flag(f, in, "final") != 0;
  }
  if (final_default) {
    a->flags |= FG_ANSWER_USAGE_FINAL;
  }
}

static void vec_answer(vec_fault *f, const cJSON *in, vec_in *store, fg_answer *a) {
  const cJSON *calls = vec_get(in, "tool_calls"), *item;
  int reported = vec_get(in, "prompt_tokens") != NULL || vec_get(in, "output_tokens") != NULL || vec_get(in, "cost_usd") != NULL;
  vec_only(f, in, "success", "prompt_tokens output_tokens cached_tokens cost_usd finish_reason output visible tool_calls attempt final");
  vec_usage(f, in, a, reported);
  a->finish = vec_word(f, vec_get(in, "finish_reason"), "finish_reason", FG_TABLE_FINISH);
  a->visible = vec_u32(f, in, "visible");
  if (vec_get(in, "output") != NULL) {
    a->output = vec_str(f, in, "output");
    a->flags |= FG_ANSWER_OUTPUT_KNOWN;
  }
  if (calls != NULL && (!cJSON_IsArray(calls) || cJSON_GetArraySize(calls) > VEC_TOOL_CALLS)) {
    vec_bad(f, "tool_calls is not a list of at most %d", (int)VEC_TOOL_CALLS);
    return;
  }
  cJSON_ArrayForEach(item, calls) {
    fg_tool_call *t = &store->tool_calls[a->tool_call_count++];
    vec_only(f, item, "tool_calls", "id name arguments");
    t->id = vec_str(f, item, "id");
    t->name = vec_str(f, item, "name");
    t->arguments = vec_str(f, item, "arguments");
  }
  a->tool_calls = store->tool_calls;
}

#endif /* VEC_IN_H */
