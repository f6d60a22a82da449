/* fivegates: what to do after a call to a large model fails.
 *
 * Evidence of a failure goes through five gates (owner, commit, budget, contract, health); out comes one decision. Nothing here
 * opens a socket, reads a clock, sleeps, or allocates (fg_card_load excepted, through the allocator it is given).
 *
 * Three flat blocks without a pointer inside: policy (immutable), region (atomics, shared by threads and processes), call (one
 * owner). Value structs begin with `size`: set it to sizeof before the call; the library reads and writes no more than that, and
 * a field it does not find is 0, which always means "unknown" or "default". Times are milliseconds: `now_ms` is the host's
 * monotonic clock, the same for all processes of a region; waits are relative. Money is int64 nano-dollars (1 USD = 1e9).
 * Ratios are parts per million. Ids of routes and workflows start at 1; 0 is none. Strings are borrowed until the call returns.
 *
 * Results: FG_OK, or a negative code (-1xx the caller's mistake, -2xx bad data, -5xx fatal). A refusal is a decision, not an error; after
 * any error the decision's action is FG_ACTION_FAIL_CLOSED, which is also the zero value. */
#ifndef FIVEGATES_H
#define FIVEGATES_H
#ifndef FG_FFI_CDEF /* cc -E -P -DFG_FFI_CDEF fivegates.h is the LuaJIT cdef */
#include <stdint.h>
#define FG_API __attribute__((visibility("default")))
#ifdef __cplusplus
extern "C" {
#endif
#else
#define FG_API
#endif

/* ------------------------------------------------------------------ names */
/* Each table: XX(number, NAME, wire_name). Numbers are never reused; wire names appear in cards, vectors, ledgers, logs. */

/* clang-format off */
/* What to do. HEDGE is a word of cards and hosts; this version never decides it. */
#define FG_ACTION_MAP(XX)                                                                                                              \
  XX(0, FAIL_CLOSED, fail_closed)                                                                                                      \
  XX(1, RETRY, retry)                                                                                                                  \
  XX(2, FALLBACK, fallback)                                                                                                            \
  XX(3, QUEUE, queue)                                                                                                                  \
  XX(4, DEGRADE, degrade)                                                                                                              \
  XX(5, PROCEED, proceed)                                                                                                              \
  XX(6, HOLD, hold)                                                                                                                    \
  XX(7, KEEP_WAITING, keep_waiting)                                                                                                    \
  XX(8, ACCEPT, accept)                                                                                                                \
  XX(9, HEDGE, hedge)

#define FG_OWNER_MAP(XX)                                                                                                               \
  XX(0, UNKNOWN, unknown)                                                                                                              \
  XX(1, TRANSIENT, transient)                                                                                                          \
  XX(2, RATE, rate)                                                                                                                    \
  XX(3, QUOTA, quota)                                                                                                                  \
  XX(4, REQUEST, request)                                                                                                              \
  XX(5, AUTH, auth)                                                                                                                    \
  XX(6, POLICY, policy)                                                                                                                \
  XX(7, LOCAL, local)

#define FG_GATE_MAP(XX)                                                                                                                \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, OWNER, owner)                                                                                                                  \
  XX(2, COMMIT, commit)                                                                                                                \
  XX(3, BUDGET, budget)                                                                                                                \
  XX(4, CONTRACT, contract)                                                                                                            \
  XX(5, HEALTH, health)

/* Failure class: which per-class retry limit applies (core/doc/design.md, 7). */
#define FG_CLASS_MAP(XX)                                                                                                               \
  XX(0, OTHER, other)                                                                                                                  \
  XX(1, CONNECT, connect)                                                                                                              \
  XX(2, SILENT, silent)                                                                                                                \
  XX(3, CUT, cut)                                                                                                                      \
  XX(4, RATE, rate)                                                                                                                    \
  XX(5, SERVER, server)                                                                                                                \
  XX(6, ANSWER, answer)

#define FG_PHASE_MAP(XX)                                                                                                               \
  XX(0, UNKNOWN, unknown)                                                                                                              \
  XX(1, CONNECT, connect)                                                                                                              \
  XX(2, TLS, tls)                                                                                                                      \
  XX(3, SEND, send)                                                                                                                    \
  XX(4, RESPONSE, response)                                                                                                            \
  XX(5, READ, read)                                                                                                                    \
  XX(6, STREAM, stream)                                                                                                                \
  XX(7, BODY, body)

#define FG_SCOPE_MAP(XX)                                                                                                               \
  XX(0, REQUEST, request)                                                                                                              \
  XX(1, MODEL, model)                                                                                                                  \
  XX(2, ACCOUNT, account)                                                                                                              \
  XX(3, NETWORK, network)                                                                                                              \
  XX(4, PROVIDER, provider)

#define FG_PERIOD_MAP(XX)                                                                                                              \
  XX(0, UNKNOWN, unknown)                                                                                                              \
  XX(1, SECOND, second)                                                                                                                \
  XX(2, MINUTE, minute)                                                                                                                \
  XX(3, HOUR, hour)                                                                                                                    \
  XX(4, DAY, day)                                                                                                                      \
  XX(5, WEEK, week)                                                                                                                    \
  XX(6, MONTH, month)

#define FG_BILLED_MAP(XX)                                                                                                              \
  XX(0, MAYBE, maybe)                                                                                                                  \
  XX(1, NO, no)                                                                                                                        \
  XX(2, YES, yes)

#define FG_COMMIT_MAP(XX)                                                                                                              \
  XX(0, UNKNOWN, unknown)                                                                                                              \
  XX(1, NONE, none)                                                                                                                    \
  XX(2, PARTIAL, partial)

/* The exact thing that went wrong; stable words. */
#define FG_KIND_MAP(XX)                                                                                                                \
  XX(0, UNKNOWN, unknown)                                                                                                              \
  XX(1, CONNECT_FAILED, connect_failed)                                                                                                \
  XX(2, CONNECT_TIMEOUT, connect_timeout)                                                                                              \
  XX(3, DNS_FAILED, dns_failed)                                                                                                        \
  XX(4, TLS_FAILED, tls_failed)                                                                                                        \
  XX(5, CERTIFICATE, certificate)                                                                                                      \
  XX(6, NETWORK_DOWN, network_down)                                                                                                    \
  XX(7, POOL_FULL, pool_full)                                                                                                          \
  XX(8, PROXY_FAILED, proxy_failed)                                                                                                    \
  XX(9, ADMISSION_REFUSED, admission_refused)                                                                                          \
  XX(10, CLIENT_GONE, client_gone)                                                                                                     \
  XX(11, SEND_FAILED, send_failed)                                                                                                     \
  XX(12, REFUSED_STREAM, refused_stream)                                                                                               \
  XX(13, RESET, reset)                                                                                                                 \
  XX(14, READ_TIMEOUT, read_timeout)                                                                                                   \
  XX(15, FIRST_TOKEN_TIMEOUT, first_token_timeout)                                                                                     \
  XX(16, IDLE_TIMEOUT, idle_timeout)                                                                                                   \
  XX(17, PROGRESS_TIMEOUT, progress_timeout)                                                                                           \
  XX(18, TOTAL_TIMEOUT, total_timeout)                                                                                                 \
  XX(19, STREAM_CUT, stream_cut)                                                                                                       \
  XX(20, MALFORMED, malformed)                                                                                                         \
  XX(21, EMPTY_ANSWER, empty_answer)                                                                                                   \
  XX(22, TRUNCATED_TOOL_CALL, truncated_tool_call)                                                                                     \
  XX(23, OUTPUT_INVALID, output_invalid)                                                                                               \
  XX(24, SERVER_ERROR, server_error)                                                                                                   \
  XX(25, SERVER_TIMEOUT, server_timeout)                                                                                               \
  XX(26, BAD_GATEWAY, bad_gateway)                                                                                                     \
  XX(27, UNAVAILABLE, unavailable)                                                                                                     \
  XX(28, OVERLOADED, overloaded)                                                                                                       \
  XX(29, CONFLICT, conflict)                                                                                                           \
  XX(30, MODEL_LOADING, model_loading)                                                                                                 \
  XX(31, RATE_LIMITED, rate_limited)                                                                                                   \
  XX(32, TOKENS_RATE_LIMITED, tokens_rate_limited)                                                                                     \
  XX(33, QUOTA_EXHAUSTED, quota_exhausted)                                                                                             \
  XX(34, NO_CREDIT, no_credit)                                                                                                         \
  XX(35, SPEND_LIMIT, spend_limit)                                                                                                     \
  XX(36, BAD_REQUEST, bad_request)                                                                                                     \
  XX(37, CONTEXT_TOO_LONG, context_too_long)                                                                                           \
  XX(38, OUTPUT_TOO_LONG, output_too_long)                                                                                             \
  XX(39, REQUEST_TOO_LARGE, request_too_large)                                                                                         \
  XX(40, UNSUPPORTED, unsupported)                                                                                                     \
  XX(41, BAD_TOOL_SCHEMA, bad_tool_schema)                                                                                             \
  XX(42, MODEL_NOT_FOUND, model_not_found)                                                                                             \
  XX(43, ENDPOINT_NOT_FOUND, endpoint_not_found)                                                                                       \
  XX(44, NEVER_FITS_LIMIT, never_fits_limit)                                                                                           \
  XX(45, BAD_KEY, bad_key)                                                                                                             \
  XX(46, NO_PERMISSION, no_permission)                                                                                                 \
  XX(47, ACCOUNT_DISABLED, account_disabled)                                                                                           \
  XX(48, REGION_BLOCKED, region_blocked)                                                                                               \
  XX(49, CONTENT_REFUSED, content_refused)                                                                                             \
  XX(50, OUTPUT_FILTERED, output_filtered)                                                                                             \
  XX(51, MODEL_REFUSED, model_refused)                                                                                                 \
  XX(52, ERROR_IN_STREAM, error_in_stream)                                                                                             \
  XX(53, LOCAL_CONFIG, local_config)                                                                                                   \
  XX(54, NO_OUTPUT, no_output)                                                                                                         \
  XX(55, OUTPUT_CUT, output_cut)

/* What the caller must change (failure.repair, decision.repair). */
#define FG_REPAIR_MAP(XX)                                                                                                              \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, SHORTEN_INPUT, shorten_input)                                                                                                  \
  XX(2, LOWER_MAX_TOKENS, lower_max_tokens)                                                                                            \
  XX(3, RAISE_MAX_TOKENS, raise_max_tokens)                                                                                            \
  XX(4, FIX_TOOL_SCHEMA, fix_tool_schema)                                                                                              \
  XX(5, FIX_REQUEST, fix_request)                                                                                                      \
  XX(6, REMOVE_FEATURE, remove_feature)                                                                                                \
  XX(7, FIX_MODEL, fix_model)                                                                                                          \
  XX(8, FIX_ENDPOINT, fix_endpoint)                                                                                                    \
  XX(9, FIX_KEY, fix_key)                                                                                                              \
  XX(10, ADD_CREDIT, add_credit)                                                                                                       \
  XX(11, USE_STREAM, use_stream)                                                                                                       \
  XX(12, CHANGE_CONTENT, change_content)                                                                                               \
  XX(13, SMALLER_REQUEST, smaller_request)

/* Commit facts (core/doc/design.md, 5); ordered, later is worse. */
#define FG_BILLING_MAP(XX)                                                                                                             \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, POSSIBLE, possible)                                                                                                            \
  XX(2, LIKELY, likely)                                                                                                                \
  XX(3, CERTAIN, certain)
#define FG_SHOWN_MAP(XX)                                                                                                               \
  XX(0, NOTHING, nothing)                                                                                                              \
  XX(1, LIFECYCLE, lifecycle)                                                                                                          \
  XX(2, VISIBLE, visible)
#define FG_EFFECT_MAP(XX)                                                                                                              \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, UNKNOWN, unknown)                                                                                                              \
  XX(2, COMMITTED, committed)

#define FG_STREAM_MAP(XX)                                                                                                              \
  XX(0, YES, true)                                                                                                                     \
  XX(1, NO, false)                                                                                                                     \
  XX(2, IMPOSSIBLE, impossible)
#define FG_DELIVERY_MAP(XX)                                                                                                            \
  XX(0, STREAM, stream)                                                                                                                \
  XX(1, WHOLE, whole)
#define FG_SERVER_STATE_MAP(XX)                                                                                                        \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, STORED, stored)                                                                                                                \
  XX(2, CONVERSATION, conversation)                                                                                                    \
  XX(3, BACKGROUND, background)                                                                                                        \
  XX(4, TOOLS, tools)

#define FG_TOOL_MAP(XX)                                                                                                                \
  XX(0, REQUESTED, requested)                                                                                                          \
  XX(1, STARTED, started)                                                                                                              \
  XX(2, COMMITTED, committed)                                                                                                          \
  XX(3, ACKNOWLEDGED, acknowledged)                                                                                                    \
  XX(4, FAILED, failed)

#define FG_EVENT_MAP(XX)                                                                                                               \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, CONNECTED, connected)                                                                                                          \
  XX(2, SENT, sent)                                                                                                                    \
  XX(3, ACCEPTED, accepted)                                                                                                            \
  XX(4, FIRST_BYTE, first_byte)                                                                                                        \
  XX(5, LIFECYCLE, lifecycle)                                                                                                          \
  XX(6, REASONING, reasoning)                                                                                                          \
  XX(7, TOOL_ARGS, tool_args)                                                                                                          \
  XX(8, TOKEN, token)                                                                                                                  \
  XX(9, TERMINAL, terminal)

#define FG_FINISH_MAP(XX)                                                                                                              \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, STOP, stop)                                                                                                                    \
  XX(2, LENGTH, length)                                                                                                                \
  XX(3, TOOL_CALLS, tool_calls)                                                                                                        \
  XX(4, CONTENT_FILTER, content_filter)                                                                                                \
  XX(5, REFUSAL, refusal)                                                                                                              \
  XX(6, ERROR, error)                                                                                                                  \
  XX(7, PAUSE, pause)                                                                                                                  \
  XX(8, OTHER, other)

#define FG_FEATURE_MAP(XX)                                                                                                             \
  XX(0, TOOLS, tools)                                                                                                                  \
  XX(1, PARALLEL_TOOLS, parallel_tools)                                                                                                \
  XX(2, TOOL_ROUND_TRIP, tool_round_trip)                                                                                              \
  XX(3, JSON_SCHEMA, json_schema)                                                                                                      \
  XX(4, SYSTEM_PROMPT, system_prompt)                                                                                                  \
  XX(5, PREFILL, prefill)                                                                                                              \
  XX(6, REASONING, reasoning)                                                                                                          \
  XX(7, CITATIONS, citations)                                                                                                          \
  XX(8, TEXT, text)                                                                                                                    \
  XX(9, IMAGE, image)                                                                                                                  \
  XX(10, AUDIO, audio)                                                                                                                 \
  XX(11, VIDEO, video)                                                                                                                 \
  XX(12, FILE, file)                                                                                                                   \
  XX(13, STREAMING, streaming)

/* What this host cannot do (bit n is value 1 << n). HEDGE and TICK change no decision of this version. */
#define FG_UNABLE_MAP(XX)                                                                                                              \
  XX(0, WAIT, wait)                                                                                                                    \
  XX(1, REROUTE, reroute)                                                                                                              \
  XX(2, EDIT, edit)                                                                                                                    \
  XX(3, CLEAR, clear)                                                                                                                  \
  XX(4, CACHE, cache)                                                                                                                  \
  XX(5, PRESET, preset)                                                                                                                \
  XX(6, QUEUE, queue)                                                                                                                  \
  XX(7, RESUME, resume)                                                                                                                \
  XX(8, HEDGE, hedge)                                                                                                                  \
  XX(9, TICK, tick)

#define FG_STEP_MAP(XX)                                                                                                                \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, SMALLER_MODEL, smaller_model)                                                                                                  \
  XX(2, SHORTER, shorter)                                                                                                              \
  XX(3, NO_THINKING, no_thinking)                                                                                                      \
  XX(4, COMPACT, compact)                                                                                                              \
  XX(5, WITHOUT_TOOLS, without_tools)                                                                                                  \
  XX(6, CACHED, cached)                                                                                                                \
  XX(7, PRESET, preset)

#define FG_RESUME_MAP(XX)                                                                                                              \
  XX(0, CALL, call)                                                                                                                    \
  XX(1, STEP, step)                                                                                                                    \
  XX(2, PREFILL, prefill)

/* How an uncertain attempt or effect can be settled. */
#define FG_LOOKUP_MAP(XX)                                                                                                              \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, NONE_EXISTS, none_exists)                                                                                                      \
  XX(2, OPERATION, operation)                                                                                                          \
  XX(3, METADATA_LIST, metadata_list)                                                                                                  \
  XX(4, GENERATION_ID, generation_id)                                                                                                  \
  XX(5, INVOCATION_LOG, invocation_log)                                                                                                \
  XX(6, RESPONSE_ID, response_id)                                                                                                      \
  XX(7, REATTACH, reattach)                                                                                                            \
  XX(8, SPEND_LOG, spend_log)

/* What to edit in the request (bit set). */
#define FG_CHANGE_MAP(XX)                                                                                                              \
  XX(0, STREAM, stream)                                                                                                                \
  XX(1, MAX_TOKENS, max_tokens)                                                                                                        \
  XX(2, DROP_TOOLS, drop_tools)                                                                                                        \
  XX(3, NO_THINKING, no_thinking)                                                                                                      \
  XX(4, COMPACT, compact)                                                                                                              \
  XX(5, CLEAR_SHOWN, clear_shown)                                                                                                      \
  XX(6, PREFILL, prefill)                                                                                                              \
  XX(7, NO_STREAM, no_stream)

/* Things a person should hear about (bit set). */
#define FG_ALERT_MAP(XX)                                                                                                               \
  XX(0, KEY_LATCHED, key_latched)                                                                                                      \
  XX(1, ACCOUNT_EMPTY, account_empty)                                                                                                  \
  XX(2, BREAKER_OPENED, breaker_opened)                                                                                                \
  XX(3, ROUTE_MISCONFIGURED, route_misconfigured)                                                                                      \
  XX(4, SPEND_LIMIT_REACHED, spend_limit_reached)                                                                                      \
  XX(5, EFFECT_UNKNOWN, effect_unknown)

#define FG_BREAKER_MAP(XX)                                                                                                             \
  XX(0, CLOSED, closed)                                                                                                                \
  XX(1, OPEN, open)                                                                                                                    \
  XX(2, HALF_OPEN, half_open)

/* Why a route may not serve now (candidate.health). */
#define FG_HEALTH_MAP(XX)                                                                                                              \
  XX(0, OK, ok)                                                                                                                        \
  XX(1, PROBE, probe)                                                                                                                  \
  XX(2, OPEN, open)                                                                                                                    \
  XX(3, STALLED, stalled)                                                                                                              \
  XX(4, FULL, full)                                                                                                                    \
  XX(5, PACED, paced)                                                                                                                  \
  XX(6, NOT_BEFORE, not_before)                                                                                                        \
  XX(7, QUOTA_LATCHED, quota_latched)                                                                                                  \
  XX(8, KEY_LATCHED, key_latched)                                                                                                      \
  XX(9, MODEL_LATCHED, model_latched)                                                                                                  \
  XX(10, RAMPING, ramping)

/* Why: XX(number, NAME, wire_name, GATE). `reason` names what stopped the nicer action; its gate is the fourth column. */
#define FG_REASON_MAP(XX)                                                                                                              \
  XX(0, NONE, none, NONE)                                                                                                              \
  XX(1, PRIMARY_READY, primary_ready, NONE)                                                                                            \
  XX(2, COMPLETE, complete, NONE)                                                                                                      \
  XX(3, IN_TIME, in_time, NONE)                                                                                                        \
  XX(4, PRIMARY_OUT, primary_out, HEALTH)                                                                                              \
  XX(5, TOO_EARLY, too_early, NONE)                                                                                                    \
  XX(10, TRANSIENT, transient, OWNER)                                                                                                  \
  XX(11, RATE_LIMITED, rate_limited, OWNER)                                                                                            \
  XX(12, QUOTA_EXHAUSTED, quota_exhausted, OWNER)                                                                                      \
  XX(13, REQUEST_INVALID, request_invalid, OWNER)                                                                                      \
  XX(14, KEY_REJECTED, key_rejected, OWNER)                                                                                            \
  XX(15, REFUSED, refused, OWNER)                                                                                                      \
  XX(16, UNKNOWN_FAILURE, unknown_failure, OWNER)                                                                                      \
  XX(17, CLIENT_GONE, client_gone, OWNER)                                                                                              \
  XX(18, LOCAL_FAULT, local_fault, OWNER)                                                                                              \
  XX(19, BAD_ANSWER, bad_answer, OWNER)                                                                                                \
  XX(20, ROUTE_MISCONFIGURED, route_misconfigured, OWNER)                                                                              \
  XX(21, TOO_LARGE, too_large, OWNER)                                                                                                  \
  XX(22, UNSUPPORTED, unsupported, OWNER)                                                                                              \
  XX(23, SERVER_FORBADE_RETRY, server_forbade_retry, OWNER)                                                                            \
  XX(24, OWNER_STOPS, owner_stops, OWNER)                                                                                              \
  XX(25, TRUNCATED_TOOL_CALL, truncated_tool_call, OWNER)                                                                              \
  XX(30, PARTIAL_OUTPUT, partial_output, COMMIT)                                                                                       \
  XX(31, MAY_HAVE_RUN, may_have_run, COMMIT)                                                                                           \
  XX(32, RECONCILE_FIRST, reconcile_first, COMMIT)                                                                                     \
  XX(33, EFFECT_COMMITTED, effect_committed, COMMIT)                                                                                   \
  XX(34, TOO_MANY_OPERATIONS, too_many_operations, COMMIT)                                                                             \
  XX(40, ATTEMPTS_EXHAUSTED, attempts_exhausted, BUDGET)                                                                               \
  XX(41, ROUTE_ATTEMPTS_EXHAUSTED, route_attempts_exhausted, BUDGET)                                                                   \
  XX(42, CLASS_RETRIES_EXHAUSTED, class_retries_exhausted, BUDGET)                                                                     \
  XX(43, RESENDS_EXHAUSTED, resends_exhausted, BUDGET)                                                                                 \
  XX(44, ELAPSED_EXHAUSTED, elapsed_exhausted, BUDGET)                                                                                 \
  XX(45, WAIT_DOES_NOT_FIT, wait_does_not_fit, BUDGET)                                                                                 \
  XX(46, TOKENS_EXHAUSTED, tokens_exhausted, BUDGET)                                                                                   \
  XX(47, COST_EXHAUSTED, cost_exhausted, BUDGET)                                                                                       \
  XX(48, RETRY_BUCKET_EMPTY, retry_bucket_empty, BUDGET)                                                                               \
  XX(49, RETRIES_IN_FLIGHT, retries_in_flight, BUDGET)                                                                                 \
  XX(50, RETRIES_PER_HOUR, retries_per_hour, BUDGET)                                                                                   \
  XX(51, SPEND_PER_DAY, spend_per_day, BUDGET)                                                                                         \
  XX(52, QUALITY_EXHAUSTED, quality_exhausted, BUDGET)                                                                                 \
  XX(53, SPILL_EXHAUSTED, spill_exhausted, BUDGET)                                                                                     \
  XX(54, HOST_CANNOT_WAIT, host_cannot_wait, BUDGET)                                                                                   \
  XX(55, HOST_UNABLE, host_unable, BUDGET)                                                                                             \
  XX(56, LIMIT_PERSISTS, limit_persists, BUDGET)                                                                                       \
  XX(57, SPILL_FORBIDDEN, spill_forbidden, BUDGET)                                                                                     \
  XX(58, ESTIMATE_DOES_NOT_FIT, estimate_does_not_fit, BUDGET)                                                                         \
  XX(59, FASTER_ELSEWHERE, faster_elsewhere, BUDGET)                                                                                   \
  XX(60, NO_STAND_IN, no_stand_in, CONTRACT)                                                                                           \
  XX(61, NOT_APPROVED, not_approved, CONTRACT)                                                                                         \
  XX(62, CONTRACT_STALE, contract_stale, CONTRACT)                                                                                     \
  XX(63, CONTRACT_EXPIRED, contract_expired, CONTRACT)                                                                                 \
  XX(64, CONTRACT_SECTION_FAILS, contract_section_fails, CONTRACT)                                                                     \
  XX(65, NO_WALL_CLOCK, no_wall_clock, CONTRACT)                                                                                       \
  XX(66, DOES_NOT_FIT_TOKENS, does_not_fit_tokens, CONTRACT)                                                                           \
  XX(67, DOES_NOT_FIT_FEATURES, does_not_fit_features, CONTRACT)                                                                       \
  XX(68, DOES_NOT_FIT_DATA, does_not_fit_data, CONTRACT)                                                                               \
  XX(69, DOES_NOT_FIT_REGION, does_not_fit_region, CONTRACT)                                                                           \
  XX(71, SAME_SCOPE, same_scope, CONTRACT)                                                                                             \
  XX(72, SAME_BUDGET, same_budget, CONTRACT)                                                                                           \
  XX(73, SAME_VENDOR, same_vendor, CONTRACT)                                                                                           \
  XX(74, OUTPUT_REJECTED, output_rejected, CONTRACT)                                                                                   \
  XX(75, DOES_NOT_FIT_TOOLS, does_not_fit_tools, CONTRACT)                                                                             \
  XX(76, DOES_NOT_FIT_ACCOUNT, does_not_fit_account, CONTRACT)                                                                         \
  XX(77, MISSING_EVIDENCE, missing_evidence, CONTRACT)                                                                                 \
  XX(80, ROUTE_OPEN, route_open, HEALTH)                                                                                               \
  XX(81, ROUTE_STALLED, route_stalled, HEALTH)                                                                                         \
  XX(82, ROUTE_FULL, route_full, HEALTH)                                                                                               \
  XX(83, ROUTE_PACED, route_paced, HEALTH)                                                                                             \
  XX(84, ROUTE_TOLD_TO_WAIT, route_told_to_wait, HEALTH)                                                                               \
  XX(85, QUOTA_LATCHED, quota_latched, HEALTH)                                                                                         \
  XX(86, KEY_LATCHED, key_latched, HEALTH)                                                                                             \
  XX(87, ROUTE_LATCHED, route_latched, HEALTH)                                                                                         \
  XX(88, SILENT_ROUTE, silent_route, HEALTH)                                                                                           \
  XX(89, SLOW_ROUTE, slow_route, HEALTH)                                                                                               \
  XX(90, CHAIN_EXHAUSTED, chain_exhausted, HEALTH)                                                                                     \
  XX(91, RAMPING, ramping, HEALTH)                                                                                                     \
  XX(92, CUT_ROUTE, cut_route, HEALTH)

/* Wire APIs the stream scanner understands. */
#define FG_WIRE_MAP(XX)                                                                                                                \
  XX(0, AUTO, auto)                                                                                                                    \
  XX(1, CHAT, chat)                                                                                                                    \
  XX(2, RESPONSES, responses)                                                                                                          \
  XX(3, MESSAGES, messages)                                                                                                            \
  XX(4, GEMINI, generateContent)

/* Tables fg_name and fg_parse answer for. */
#define FG_TABLE_MAP(XX)                                                                                                               \
  XX(1, ACTION, action)                                                                                                                \
  XX(2, OWNER, owner)                                                                                                                  \
  XX(3, GATE, gate)                                                                                                                    \
  XX(4, CLASS, class)                                                                                                                  \
  XX(5, PHASE, phase)                                                                                                                  \
  XX(6, SCOPE, scope)                                                                                                                  \
  XX(7, PERIOD, period)                                                                                                                \
  XX(8, BILLED, billed)                                                                                                                \
  XX(9, COMMIT, commit)                                                                                                                \
  XX(10, KIND, kind)                                                                                                                   \
  XX(11, REPAIR, repair)                                                                                                               \
  XX(12, BILLING, billing)                                                                                                             \
  XX(13, SHOWN, shown)                                                                                                                 \
  XX(14, EFFECT, effect)                                                                                                               \
  XX(15, STREAM, stream)                                                                                                               \
  XX(16, DELIVERY, delivery)                                                                                                           \
  XX(17, SERVER_STATE, server_state)                                                                                                   \
  XX(18, TOOL, tool)                                                                                                                   \
  XX(19, EVENT, event)                                                                                                                 \
  XX(20, FINISH, finish)                                                                                                               \
  XX(21, FEATURE, feature)                                                                                                             \
  XX(22, UNABLE, unable)                                                                                                               \
  XX(23, STEP, step)                                                                                                                   \
  XX(24, RESUME, resume)                                                                                                               \
  XX(25, LOOKUP, lookup)                                                                                                               \
  XX(26, CHANGE, change)                                                                                                               \
  XX(27, ALERT, alert)                                                                                                                 \
  XX(28, BREAKER, breaker)                                                                                                             \
  XX(29, HEALTH, health)                                                                                                               \
  XX(30, REASON, reason)                                                                                                               \
  XX(31, WIRE, wire)

/* clang-format on */
#define FG_ENUM_ACTION(n, N, w) FG_ACTION_##N = n,
#define FG_ENUM_OWNER(n, N, w) FG_OWNER_##N = n,
#define FG_ENUM_GATE(n, N, w) FG_GATE_##N = n,
#define FG_ENUM_CLASS(n, N, w) FG_CLASS_##N = n,
#define FG_ENUM_PHASE(n, N, w) FG_PHASE_##N = n,
#define FG_ENUM_SCOPE(n, N, w) FG_SCOPE_##N = n,
#define FG_ENUM_PERIOD(n, N, w) FG_PERIOD_##N = n,
#define FG_ENUM_BILLED(n, N, w) FG_BILLED_##N = n,
#define FG_ENUM_COMMIT(n, N, w) FG_COMMIT_##N = n,
#define FG_ENUM_KIND(n, N, w) FG_KIND_##N = n,
#define FG_ENUM_REPAIR(n, N, w) FG_REPAIR_##N = n,
#define FG_ENUM_BILLING(n, N, w) FG_BILLING_##N = n,
#define FG_ENUM_SHOWN(n, N, w) FG_SHOWN_##N = n,
#define FG_ENUM_EFFECT(n, N, w) FG_EFFECT_##N = n,
#define FG_ENUM_STREAM(n, N, w) FG_STREAM_##N = n,
#define FG_ENUM_DELIVERY(n, N, w) FG_DELIVERY_##N = n,
#define FG_ENUM_SERVER_STATE(n, N, w) FG_SERVER_STATE_##N = n,
#define FG_ENUM_TOOL(n, N, w) FG_TOOL_##N = n,
#define FG_ENUM_EVENT(n, N, w) FG_EVENT_##N = n,
#define FG_ENUM_FINISH(n, N, w) FG_FINISH_##N = n,
#define FG_ENUM_FEATURE(n, N, w) FG_FEATURE_##N = 1 << n,
#define FG_ENUM_UNABLE(n, N, w) FG_UNABLE_##N = 1 << n,
#define FG_ENUM_STEP(n, N, w) FG_STEP_##N = n,
#define FG_ENUM_RESUME(n, N, w) FG_RESUME_##N = n,
#define FG_ENUM_LOOKUP(n, N, w) FG_LOOKUP_##N = n,
#define FG_ENUM_CHANGE(n, N, w) FG_CHANGE_##N = 1 << n,
#define FG_ENUM_ALERT(n, N, w) FG_ALERT_##N = 1 << n,
#define FG_ENUM_BREAKER(n, N, w) FG_BREAKER_##N = n,
#define FG_ENUM_HEALTH(n, N, w) FG_HEALTH_##N = n,
#define FG_ENUM_REASON(n, N, w, g) FG_REASON_##N = n,
#define FG_ENUM_WIRE(n, N, w) FG_WIRE_##N = n,
#define FG_ENUM_TABLE(n, N, w) FG_TABLE_##N = n,

enum { FG_ACTION_MAP(FG_ENUM_ACTION) FG_ACTION_COUNT };
enum { FG_OWNER_MAP(FG_ENUM_OWNER) FG_OWNER_COUNT };
enum { FG_GATE_MAP(FG_ENUM_GATE) FG_GATE_COUNT };
enum { FG_CLASS_MAP(FG_ENUM_CLASS) FG_CLASS_COUNT };
enum { FG_PHASE_MAP(FG_ENUM_PHASE) FG_PHASE_COUNT };
enum { FG_SCOPE_MAP(FG_ENUM_SCOPE) FG_SCOPE_COUNT };
enum { FG_PERIOD_MAP(FG_ENUM_PERIOD) FG_PERIOD_COUNT };
enum { FG_BILLED_MAP(FG_ENUM_BILLED) FG_BILLED_COUNT };
enum { FG_COMMIT_MAP(FG_ENUM_COMMIT) FG_COMMIT_COUNT };
enum { FG_KIND_MAP(FG_ENUM_KIND) FG_KIND_COUNT };
enum { FG_REPAIR_MAP(FG_ENUM_REPAIR) FG_REPAIR_COUNT };
enum { FG_BILLING_MAP(FG_ENUM_BILLING) FG_BILLING_COUNT };
enum { FG_SHOWN_MAP(FG_ENUM_SHOWN) FG_SHOWN_COUNT };
enum { FG_EFFECT_MAP(FG_ENUM_EFFECT) FG_EFFECT_COUNT };
enum { FG_STREAM_MAP(FG_ENUM_STREAM) FG_STREAM_COUNT };
enum { FG_DELIVERY_MAP(FG_ENUM_DELIVERY) FG_DELIVERY_COUNT };
enum { FG_SERVER_STATE_MAP(FG_ENUM_SERVER_STATE) FG_SERVER_STATE_COUNT };
enum { FG_TOOL_MAP(FG_ENUM_TOOL) FG_TOOL_COUNT };
enum { FG_EVENT_MAP(FG_ENUM_EVENT) FG_EVENT_COUNT };
enum { FG_FINISH_MAP(FG_ENUM_FINISH) FG_FINISH_COUNT };
enum { FG_FEATURE_MAP(FG_ENUM_FEATURE) FG_FEATURE_ALL = (1 << 14) - 1 };
enum { FG_UNABLE_MAP(FG_ENUM_UNABLE) FG_UNABLE_ALL = (1 << 10) - 1 };
enum { FG_STEP_MAP(FG_ENUM_STEP) FG_STEP_COUNT };
enum { FG_RESUME_MAP(FG_ENUM_RESUME) FG_RESUME_COUNT };
enum { FG_LOOKUP_MAP(FG_ENUM_LOOKUP) FG_LOOKUP_COUNT };
enum { FG_CHANGE_MAP(FG_ENUM_CHANGE) FG_CHANGE_ALL = (1 << 8) - 1 };
enum { FG_ALERT_MAP(FG_ENUM_ALERT) FG_ALERT_ALL = (1 << 6) - 1 };
enum { FG_BREAKER_MAP(FG_ENUM_BREAKER) FG_BREAKER_COUNT };
enum { FG_HEALTH_MAP(FG_ENUM_HEALTH) FG_HEALTH_COUNT };
enum { FG_REASON_MAP(FG_ENUM_REASON) FG_REASON_COUNT };
enum { FG_WIRE_MAP(FG_ENUM_WIRE) FG_WIRE_COUNT };
enum { FG_TABLE_MAP(FG_ENUM_TABLE) FG_TABLE_COUNT };

enum {
  FG_OK = 0,
  FG_ERR_ARG = -101,   /* a null pointer, an id or value outside its range, wall time passed as now_ms */
  FG_ERR_STATE = -102, /* the call has ended, or belongs to another engine */
  FG_ERR_ABI = -103,   /* a struct smaller than its first version, or memory too small */
  FG_ERR_SYNTAX = -201,
  FG_ERR_RANGE = -202,
  FG_ERR_CONTRACT = -203,
  FG_ERR_REGION = -204, /* not a region, or of another layout, boot or size */
  FG_ERR_FULL = -205,   /* no free slot or record */
  FG_ERR_NOMEM = -501
};

/* Load errors by kind: fg_error.what. Wire names are the vectors' codes. */
#define FG_LOAD_MAP(XX)                                                                                                                \
  XX(0, NONE, none)                                                                                                                    \
  XX(1, SYNTAX, syntax)                                                                                                                \
  XX(2, UNKNOWN_KEY, unknown_key)                                                                                                      \
  XX(3, DUPLICATE_KEY, duplicate_key)                                                                                                  \
  XX(4, BAD_TYPE, bad_type)                                                                                                            \
  XX(5, BAD_VALUE, bad_value)                                                                                                          \
  XX(6, UNKNOWN_NAME, unknown_name)                                                                                                    \
  XX(7, MISSING, missing)                                                                                                              \
  XX(8, UNPRICED_ROUTE, unpriced_route)                                                                                                \
  XX(9, LIMIT, limit)
#define FG_ENUM_LOAD(n, N, w) FG_LOAD_##N = n,
enum { FG_LOAD_MAP(FG_ENUM_LOAD) FG_LOAD_COUNT };
enum { FG_TABLE_LOAD = 40 };

enum { FG_ROUTES_MAX = 16, FG_OPS_MAX = 32, FG_LADDER_MAX = 8, FG_NAME_MAX = 64, FG_CALL_ID_MAX = 40, FG_TOOLS_MAX = 128 };

/* ---------------------------------------------------------------- structs */
typedef struct fg_policy fg_policy;
typedef struct fg_region fg_region;
typedef struct fg_engine fg_engine;                     /* policy + region + process slot; never changes after init */
typedef struct fg_call { uint64_t word[128]; } fg_call; /* 1 KiB, the caller's; memcpy saves it and resumes it */
typedef struct fg_sse { uint64_t word[256]; } fg_sse;   /* 2 KiB; incremental scanner of one answer, see fg_sse_feed */

typedef struct fg_str { const char *ptr; uint32_t len; uint32_t zero; } fg_str;
typedef struct fg_header { fg_str name, value; } fg_header;

typedef struct fg_error {
  uint32_t size;
  int32_t code;               /* FG_ERR_* */
  uint32_t what;              /* FG_LOAD_* */
  uint32_t line, column;      /* 1.., 0 = not known */
  uint32_t offset;            /* bytes from the start of the text */
  char path[108];             /* workflows.w.budget.elapsed_ms */
  char message[200];          /* what is wrong and what to do; NUL-terminated */
} fg_error;

typedef struct fg_mem {
  void *(*alloc)(void *ctx, uint64_t size); /* NULL on failure; 16-byte aligned */
  void (*free)(void *ctx, void *ptr);
  void *ctx;
} fg_mem;

typedef struct fg_region_config {
  uint32_t size, routes, accounts, workflows; /* records wanted; the region makes twice the slots; 0 = 64, 16, 64 */
  uint32_t procs, rows;                       /* process slots 8..256 (0 = 64); witness rows a process (0 = 256) */
  uint64_t boot[2];                           /* this boot's id: a region of another boot is rebuilt */
} fg_region_config;

typedef struct fg_tool_call { fg_str id, name, arguments; } fg_tool_call; /* arguments: JSON text */

typedef struct fg_request { /* the facts of one logical call */
  uint32_t size, unable;    /* FG_UNABLE_*: what never to ask of this host */
  fg_str workflow, call_id, tenant, affinity, account, data_class, region;
  uint32_t prompt_tokens, max_output_tokens, request_bytes; /* 0 = unknown */
  uint32_t max_wait_ms;                                     /* longest single wait the host accepts; 0 = no limit */
  uint32_t stream, delivery, server_state, features;        /* FG_STREAM_*, FG_DELIVERY_*, FG_SERVER_STATE_*, FG_FEATURE_* */
  const fg_str *tools;                                      /* names of the tools offered */
  uint32_t tool_count, tool_choice;                         /* tool_choice: 1 + index of a forced tool, 0 = free */
  uint32_t prior_attempts, prior_tokens;                    /* spent before this begin (a redelivered call) */
  int64_t prior_cost_nusd;
  fg_str language;                                          /* of preset texts, such as "en" */
} fg_request;

enum { /* fg_evidence.flags */
  FG_EV_CLIENT_GONE = 1,  /* the caller left */
  FG_EV_LOCAL = 2,        /* origin local: refused on this side, nothing reached the provider */
  FG_EV_PROGRESS = 4,     /* the progress fields below are known; else 0 means unknown there */
  FG_EV_WHOLE_BODY = 8    /* body is the complete transcript, not a prefix */
};

typedef struct fg_evidence { /* what the host saw of a failed attempt; 0 and empty are unknown */
  uint32_t size, phase;     /* FG_PHASE_* */
  int32_t status, code;     /* HTTP status; the transport's own number (CURLcode, errno) */
  uint32_t flags, inner_attempts;
  fg_str provider, api, lib, kind, message, body;
  const fg_header *headers;
  uint32_t header_count, elapsed_ms;
  uint32_t visible, lifecycle, reasoning, tool_args_bytes, terminal; /* progress: counts; terminal FG_FINISH_* */
  uint32_t last_byte_ms, last_progress_ms;
  uint32_t timeout;         /* FG_KIND_*_TIMEOUT when one of our clocks ended it */
  int64_t unix_ms;          /* wall time now, for dates without a Date header; 0 = unknown */
} fg_evidence;

enum { /* fg_failure.flags */
  FG_FAIL_OVERLOAD = 1,
  FG_FAIL_TRIPS_BREAKER = 2,
  FG_FAIL_HAS_RETRY_AFTER = 4, /* retry_after_ms is meant, even when 0 */
  FG_FAIL_SHOULD_RETRY = 8,    /* the server said x-should-retry: true */
  FG_FAIL_MUST_NOT_RETRY = 16, /* the server said x-should-retry: false */
  FG_FAIL_NEVER_SENT = 32,     /* proved: nothing reached the provider */
  FG_FAIL_SILENT = 64,         /* sent, nothing came back */
  FG_FAIL_LOCAL_FAULT = 128    /* network scope, but this side's fault: nobody is darkened */
};

typedef struct fg_failure {
  uint32_t size, owner, kind, klass, scope, period, billed, commit, repair, flags, retry_after_ms;
  uint32_t rule; /* which rule matched: 1.. of the policy's own, 0x10000 + n of the built-in ones, 0 none; fg_rule_why */
} fg_failure;

typedef struct fg_answer { /* an attempt came to its end by itself */
  uint32_t size, finish;   /* FG_FINISH_* */
  uint32_t prompt_tokens, cached_tokens, output_tokens; /* 0 = not reported */
  uint32_t tool_call_count;
  const fg_tool_call *tool_calls;
  int64_t cost_nusd;       /* as the provider reports it; 0 = not reported */
  fg_str output;           /* the text of the answer, for the output check */
  uint32_t flags, visible; /* FG_ANSWER_*; visible characters when the text itself is not kept */
} fg_answer;
enum { FG_ANSWER_OUTPUT_KNOWN = 1, FG_ANSWER_USAGE_FINAL = 2 };

typedef struct fg_decision {
  uint32_t size, action;
  uint32_t route;          /* send there (retry, fallback, proceed, hedge), or whose answer it is; 0 none */
  uint32_t attempt;        /* number of the attempt meant, from 1 */
  uint32_t wait_ms;        /* wait so long first */
  uint32_t wake_ms;        /* call fg_call_deadline after so long if nothing came; 0 = nothing runs */
  uint32_t reason, detail; /* FG_REASON_*: what stopped the nicer action; what stopped the one before it */
  uint32_t gate, owner, kind; /* FG_GATE_* of reason; FG_OWNER_* and FG_KIND_* of the last failure */
  uint32_t step, ladder_step; /* degrade: number of the ladder step in the card, from 1, 0 none; FG_STEP_* of it */
  uint32_t resume_from;    /* FG_RESUME_*: from where the next send begins */
  uint32_t lookup;         /* FG_LOOKUP_*: how an uncertain attempt or effect can be settled */
  uint32_t cancel;         /* number of the attempt to hang up, 0 none */
  uint32_t attempts_left, elapsed_left_ms, tokens_left, may_pay_twice;        /* *_left: UINT32_MAX = no limit */
  int64_t cost_left_nusd;                                                     /* INT64_MAX = no limit */
  uint32_t connect_ms, first_token_ms, idle_ms, progress_ms, total_ms;
  uint32_t change, max_tokens, compact_tokens, max_age_s; /* FG_CHANGE_*; values for it; of a cached answer */
  uint32_t reuse_ops;      /* bit n: the n-th operation of this step may be sent again under its id */
  uint32_t repair, alert;  /* FG_REPAIR_*; FG_ALERT_* bits */
  uint32_t text;           /* preset text: fg_policy_preset; 0 none */
  uint32_t user_may_retry; /* 1: tell the end user that trying again later can help */
  uint32_t hint_status, hint_should_retry, hint_retry_after_ms; /* for an HTTP answer to an outer layer; 0 status = none */
  uint32_t label;          /* 1: the answer comes from a stand-in or is degraded; requested is the primary's id */
  uint32_t requested;
  uint32_t rejected_count, rejected[16]; /* route | reason << 16, in the order they were weighed */
} fg_decision;

enum { /* fg_candidate.flags */
  FG_CAND_PRIMARY = 1,
  FG_CAND_LADDER = 2,        /* serves only as a smaller_model step */
  FG_CAND_IN_SCOPE = 4,      /* darkened by the same failure */
  FG_CAND_OTHER_BUDGET = 8,  /* its quota owner is declared and differs from the failed route's */
  FG_CAND_OTHER_VENDOR = 16, /* contract allows it after a refusal, and the vendor differs */
  FG_CAND_LARGER = 32,       /* declared limits hold what the failed route could not */
  FG_CAND_OUT = 64,          /* its answer was rejected in this call */
  FG_CAND_PREFILL = 128,     /* can continue a partial answer */
  FG_CAND_OTHER_MODEL = 256,
  FG_CAND_EARLY = 512        /* the primary, its probe due by time: not yet paid for by requests, so a stand-in goes first */
};

typedef struct fg_candidate { /* one route of the workflow, as seen now */
  uint32_t route, flags;
  uint32_t barred;            /* FG_REASON_* of the contract gate: not approved or does not fit; 0 = may serve */
  uint32_t health, health_wait_ms; /* FG_HEALTH_*; how long until it may serve */
  uint32_t sends_left;        /* per-route attempts left */
  uint32_t estimate_ms;       /* to the first token, or the whole answer when not streamed */
  uint32_t first_token_ms;    /* its first-token time-out */
  uint32_t tokens;            /* worst case of one attempt */
  uint32_t drop_ppm;          /* quality below the primary's */
  uint32_t bucket;            /* 0 the bucket pays, else FG_REASON_* */
  uint32_t change, max_tokens; /* edits the contract makes to the request there */
  int64_t extra_nusd;         /* extra money one more attempt there would be, INT64_MAX = unpriced */
} fg_candidate;

enum { FG_STAGE_BEGIN = 0, FG_STAGE_FAILURE = 1 }; /* before an attempt; after a failed one */
enum { FG_SAFE_NOT_SENT = 0, FG_SAFE_ACCEPTED = 1, FG_SAFE_FIRST_VISIBLE = 2, FG_SAFE_FIRST_TOOL = 3 };
enum { FG_AFTER_STOP = 0, FG_AFTER_RESTART = 1, FG_AFTER_CONTINUE = 2 };
enum { FG_SILENCE_NONE = 0, FG_SILENCE_STAND_IN = 1, FG_SILENCE_ANY = 2 };
enum { FG_SPILL_NEVER = 0, FG_SPILL_WHEN_NEEDED = 1, FG_SPILL_PREFER_FAST = 2 };
enum { /* fg_facts.flags */
  FG_FACT_QUEUE_OK = 1,          /* the workflow may queue */
  FG_FACT_WAITED = 2,            /* this call has waited once for this route's limit */
  FG_FACT_SLOW = 4,              /* the failure took longer than slow_failure_ms */
  FG_FACT_PRIOR_EFFECT = 8,      /* an earlier step committed something */
  FG_FACT_TOOL_OPEN = 16,        /* a tool call or signed reasoning is open in what was shown */
  FG_FACT_OPS_OVERFLOW = 32,     /* more operations than a step can hold */
  FG_FACT_SPILL_OK = 64,         /* the spill share allows one more */
  FG_FACT_STREAMED = 128,        /* the answer streams (elapsed bounds its beginning) */
  FG_FACT_HOURLY_OUT = 256,      /* retries_per_hour is used up */
  FG_FACT_DAILY_OUT = 512,       /* spend_per_day is used up */
  FG_FACT_RESUMABLE = 1024,      /* a step is open: it alone may be sent again */
  FG_FACT_EMPTY_END = 2048,      /* a well-formed end without output */
  FG_FACT_ROUTE_PACED = 4096     /* the failed route is paced now */
};

typedef struct fg_rung { /* one step of the ladder, as it would be now */
  uint32_t step;            /* FG_STEP_* */
  uint32_t route_index;     /* candidate of a smaller_model step */
  uint32_t max_tokens, compact_tokens, max_age_s, text; /* its values */
  uint32_t spent;           /* 1: already used in this call, or the host said it cannot */
  uint32_t helps;           /* 1: it would change something (fewer tokens than now, tools to drop, a score that is enough) */
  uint32_t tokens, estimate_ms; /* an edited request's worst case and estimate on the failed route (or the primary) */
  int64_t extra_nusd;       /* extra money it would be */
} fg_rung;

typedef struct fg_facts { /* everything fg_decide looks at; the engine fills the same struct */
  uint32_t size, stage, flags, unable, max_wait_ms;
  uint32_t safe_until, after_visible, after_silence, stop_on; /* FG_SAFE_*, FG_AFTER_*, FG_SILENCE_*; bit 1 << owner */
  uint32_t billing, shown, effect, server_state;
  fg_failure failure;
  uint32_t failed;         /* index of the failed route in candidate[] */
  uint32_t backoff_ms;     /* drawn wait of a retry there (jitter included, server's hint respected) */
  uint32_t hint_cap_ms;    /* a longer hint means unavailable until then */
  uint32_t class_left;     /* retries of this class left on the failed route */
  uint32_t attempts_left, resends_left, elapsed_left_ms, tokens_left; /* UINT32_MAX = no limit */
  uint32_t quality_left_ppm, spill_mode, hold_ms;
  int64_t cost_left_nusd;
  uint32_t ladder_count, candidate_count; /* candidate[0] is the primary; the others in the order to try */
  uint32_t lookup, truncated_max_tokens;  /* look-up of the failed route; larger max_tokens for a truncated tool call */
  uint32_t queue_left_ms, zero;           /* a call may wait so long in the queue; a longer wait is no use */
  fg_rung ladder[8];
  fg_candidate candidate[16];
} fg_facts;

typedef struct fg_route_info { /* what the card says of a route; texts point into the policy, empty = not given */
  uint32_t size, account;  /* account: its id */
  fg_str name, provider, model, base_url;
  fg_str key_env;          /* environment variable that holds the key; the key itself is nowhere */
  fg_str account_name, api;
  int64_t price_input, price_cached, price_output; /* nano-dollars per million tokens; -1 unknown */
} fg_route_info;

typedef struct fg_route_view { /* one route's live state, over all processes of the region */
  uint32_t size, breaker, health;  /* FG_BREAKER_*; FG_HEALTH_*: why it may not serve now */
  uint32_t open_for_ms;            /* until the breaker lets a probe through; 0 when it is not open */
  uint32_t generation;             /* of the breaker: raised with every change of its state */
  uint32_t opened_count;           /* times it opened */
  uint32_t in_flight, retries;     /* attempts now; same-route retries among them */
  uint32_t limit;                  /* in-flight limit that holds: of the card or learned, the smaller; 0 none */
  uint32_t z_milli, run;           /* stall evidence, in thousandths of a standard deviation; failures in a row */
  uint32_t window_ok, window_failed;    /* ends in the breaker's window */
  uint32_t first_token_ms, stall_ms;    /* median to the first token; silence that is unusual */
  uint32_t samples;                /* first tokens these were learned from */
  uint32_t rate_milli;             /* learned pace, requests per 1,000 s; 0 none holds */
  uint32_t not_before_ms;          /* rest of a Retry-After */
  uint32_t balance_milli;          /* retry bucket; 1,000 pays one retry */
  uint32_t latch, latch_for_ms;    /* FG_HEALTH_*_LATCHED, or FG_HEALTH_OK; until it lets a probe through */
  uint64_t attempts, successes, failures, tokens; /* since the record was made */
} fg_route_view;

typedef struct fg_workflow_view { /* one workflow's counters since its record was made, over all processes of the region */
  uint32_t size, zero;
  uint64_t calls;                  /* begun; each stands in one of the next seven, the latest, or is still open */
  uint64_t primary_success, retry_recovery, fallback_recovery, degraded, failed_closed, queued, cancelled;
  uint64_t retries_this_hour;
  uint64_t spent_today_nusd;       /* nano-dollars, held worst cases included */
} fg_workflow_view;

/* --------------------------------------------------------------- functions */
/* Every one says: what it means; units and ranges; who owns what; errors; threads. Where nothing is said: pointers are borrowed for the
 * call and must not be NULL, nothing is allocated, any thread may call it, and a result is a plain value. An `out` struct has its size
 * set by the caller; one that is too small is FG_ERR_ABI, a NULL pointer or a value outside its range is FG_ERR_ARG. */

/* ---- names, and the pure functions: no engine, no state */

/* The library's version: major << 16 | minor << 8 | patch. */
FG_API uint32_t fg_version(void);
/* The number of the binary interface: a small integer, raised when a struct or a meaning breaks. */
FG_API uint32_t fg_abi(void);
/* Bytes of a public struct by its name, such as "fg_decision"; 0: no such struct, or NULL. Bindings check themselves with it at load. */
FG_API uint32_t fg_sizeof(const char *name);
/* Wire name of a value of a table (FG_TABLE_*); of a bit set's table, value is the bit's number. Static text, never freed; NULL: no such
 * table or value. */
FG_API const char *fg_name(uint32_t table, uint32_t value);
/* Value of a wire name of `len` bytes in a table (FG_TABLE_*); of a bit set's table, the bit's number. -1: not there, or text is NULL. */
FG_API int32_t fg_parse(uint32_t table, const char *text, uint32_t len);
/* FG_GATE_* a reason (FG_REASON_*) belongs to; FG_GATE_NONE for an unknown one. */
FG_API uint32_t fg_reason_gate(uint32_t reason);
/* Judges one failed attempt: evidence to owner, kind, class and waits (milliseconds). p may be NULL: built-in rules only. out holds no
 * pointer into the evidence. FG_OK, whatever the evidence says; FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_classify(const fg_policy *p, const fg_evidence *e, fg_failure *out);
/* One line on the rule that matched (fg_failure.rule); "" when there is none, never NULL. The text of a card's own rule lies in p. */
FG_API const char *fg_rule_why(const fg_policy *p, uint32_t rule);
/* The kernel: facts to decision, nothing else is read or changed. FG_OK; FG_ERR_ARG when a count or an index of the facts is out of
 * range, FG_ERR_ABI; after an error out->action is fail_closed. */
FG_API int32_t fg_decide(const fg_facts *facts, fg_decision *out);

/* ---- the stream scanner; one fg_sse, the caller's memory, is used by one thread at a time */

enum { FG_SSE_WHOLE = 1 }; /* flag of fg_sse_init: the body is one JSON document, not a stream */
enum { /* bits fg_sse_feed returns */
  FG_SAW_BYTE = 1, FG_SAW_LIFECYCLE = 2, FG_SAW_REASONING = 4, FG_SAW_TOKEN = 8, FG_SAW_TOOL_ARGS = 16, FG_SAW_USAGE = 32,
  FG_SAW_TERMINAL = 64, FG_SAW_ERROR = 128, FG_SAW_MALFORMED = 256
};
/* Begins a scan. wire: FG_WIRE_*, AUTO tells it from the events; flags: FG_SSE_*. Needs no end: drop or reuse the memory. */
FG_API void fg_sse_init(fg_sse *s, uint32_t wire, uint32_t flags);
/* Feeds `len` decoded bytes of the body as they come, cut anywhere; they are not kept. bytes may be NULL when len is 0. Returns what
 * these bytes contained (FG_SAW_*, 0 or more); FG_ERR_ARG. */
FG_API int32_t fg_sse_feed(fg_sse *s, const char *bytes, uint32_t len);
/* Finish reason, usage (tokens, nano-dollars) and counts seen so far, for fg_call_success and fg_call_usage. out->output stays empty: the
 * text is not kept. FG_OK, FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_sse_answer(const fg_sse *s, fg_answer *out);
/* The answer's id as its provider calls it (at most 79 bytes of UTF-8), for fg_ledger_served; empty until it was told. Points into s: use it
 * before s is fed again or dropped. FG_OK, FG_ERR_ARG. */
FG_API int32_t fg_sse_id(const fg_sse *s, fg_str *out);
/* Progress and an in-band error as evidence, for fg_call_failure: fills status and phase where the caller left them unknown, the
 * progress fields, terminal and body; the other fields stay. body points into s: use it before s is fed again or dropped. FG_OK,
 * FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_sse_evidence(const fg_sse *s, fg_evidence *out);

/* ---- the card: JSON text to one flat, immutable block that any number of threads and engines share */

/* Parses, checks and compiles `len` bytes of JSON. The block is the caller's: freed with fg_policy_free, or copied and mapped elsewhere
 * (8-byte aligned, fg_policy_bytes long). Allocates through mem, nothing but the block stays allocated. FG_OK; FG_ERR_SYNTAX,
 * FG_ERR_RANGE, FG_ERR_CONTRACT, FG_ERR_NOMEM with err (may be NULL) filled: what, path, line, column; FG_ERR_ARG. *out is NULL after an
 * error. */
FG_API int32_t fg_card_load(const char *text, uint64_t len, const fg_mem *mem, fg_policy **out, fg_error *err);
/* Frees a block through the allocator it was made with. No engine may use it any more. NULL is fine. */
FG_API void fg_policy_free(fg_policy *p, const fg_mem *mem);
/* Bytes of the block; 0: not a block of this library's layout. */
FG_API uint64_t fg_policy_bytes(const fg_policy *p);
/* "sha256:" and 64 hexadecimal digits of the card's meaning: the order of keys and white space do not count. Points into p. FG_OK,
 * FG_ERR_ARG. */
FG_API int32_t fg_policy_fingerprint(const fg_policy *p, fg_str *out);
enum { FG_FIND_ROUTE = 1, FG_FIND_WORKFLOW = 2, FG_FIND_ACCOUNT = 3 }; /* `what` of the three functions below */
/* Id of a name of `len` bytes, from 1; 0: not there. */
FG_API uint32_t fg_policy_find(const fg_policy *p, uint32_t what, const char *name, uint32_t len);
/* How many there are: ids are 1 to that; 0: no such `what`. */
FG_API uint32_t fg_policy_count(const fg_policy *p, uint32_t what);
/* Name of an id; points into p. FG_OK; FG_ERR_ARG: no such id. */
FG_API int32_t fg_policy_name(const fg_policy *p, uint32_t what, uint32_t id, fg_str *out);
/* What the card says of a route (an id): where to send and what it costs. Texts point into p. FG_OK; FG_ERR_ARG: no such id; FG_ERR_ABI. */
FG_API int32_t fg_policy_route_info(const fg_policy *p, uint32_t route, fg_route_info *out);
/* Text of a preset (decision.text) in a language such as "en-GB": its own, else that of "en", else the first of the card. language may
 * be NULL. Points into p. FG_OK; FG_ERR_ARG: no such text. */
FG_API int32_t fg_policy_preset(const fg_policy *p, uint32_t text, const char *language, uint32_t len, fg_str *out);
/* The index-th warning about the card, from 0. FG_OK with path, line, column and message; FG_ERR_RANGE: no more; FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_policy_lint(const fg_policy *p, uint32_t index, fg_error *out);
/* May this route (an id) serve this workflow (an id)? *barred: FG_REASON_* that bars it, 0 when approved (dates are not looked at);
 * *fingerprint, into p: what an approval must name. FG_OK; FG_ERR_ARG: no such id, or the workflow does not name the route. */
FG_API int32_t fg_policy_contract(const fg_policy *p, uint32_t workflow, uint32_t route, uint32_t *barred, fg_str *fingerprint);
/* Where a decision says FG_CHANGE_DROP_TOOLS for a route (an id) of a workflow (an id): must this tool be taken out of the request? 1, 0 (it
 * stays; also when no tool is named). The ladder's without_tools takes out all. FG_ERR_ARG: no such id, or the workflow does not name the route. */
FG_API int32_t fg_policy_drops_tool(const fg_policy *p, uint32_t workflow, uint32_t route, const char *tool, uint32_t len);

/* ---- region and engine, in the caller's memory; any number of threads and processes at once */

/* Bytes a region of this configuration needs; 0: a size in it is out of range. */
FG_API uint64_t fg_region_bytes(const fg_region_config *c);
/* Opens the region in mem: 8-byte aligned, at least fg_region_bytes long, all zero when it is new, kept by the caller until no engine
 * uses it. A region of another boot or clock is begun anew, and err says so though the answer is FG_OK. Opening is not for two processes
 * at once: hosts lock, as fg_host_map_open does. err may be NULL. FG_OK; FG_ERR_REGION: not a region, or of another layout or size;
 * FG_ERR_ABI: too few bytes; FG_ERR_ARG, also when now_ms is wall time. */
FG_API int32_t fg_region_open(void *mem, uint64_t bytes, const fg_region_config *c, int64_t now_ms, fg_region **out, fg_error *err);
/* The process of this slot is gone: gives back what its attempts in flight held. The slot must not be in use. FG_OK, FG_ERR_ARG. */
FG_API int32_t fg_region_reap(fg_region *r, uint32_t slot, int64_t now_ms);
/* Bytes an engine of this policy needs; 0 for NULL. */
FG_API uint64_t fg_engine_bytes(const fg_policy *p);
/* Makes an engine in mem (8-byte aligned, fg_engine_bytes long). slot: this process's slot of the region, from 0. seed: of all jitter,
 * unless the card names one; same seed and same events, same decisions. mem, p and r must outlive the engine; it needs no end. err may be
 * NULL. FG_OK; FG_ERR_FULL: the region has no room for the policy's routes, accounts or workflows; FG_ERR_ABI: memory too small, or not
 * a block of this layout; FG_ERR_ARG, also when now_ms is not the region's clock. */
FG_API int32_t fg_engine_init(void *mem, uint64_t bytes, const fg_policy *p, fg_region *r, uint32_t slot, uint64_t seed, int64_t now_ms,
                              fg_engine **out, fg_error *err);
/* Tells the wall time of now_ms: unix_ms, milliseconds since 1970. Kept in the region for contract dates, daily limits and the ledger;
 * say it at the start and every few minutes. FG_OK, FG_ERR_ARG. */
FG_API int32_t fg_engine_clock(const fg_engine *e, int64_t unix_ms, int64_t now_ms);
/* Looks at overdue attempts of all processes, so that silence is noticed while no call asks. Returns the milliseconds after which to call
 * again, 1 to 1,000; FG_ERR_ARG. Optional: every call looks too. */
FG_API int32_t fg_engine_tick(const fg_engine *e, int64_t now_ms);
/* Live state of a route (an id). FG_OK; FG_ERR_FULL: the region has no record free for it; FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_engine_route(const fg_engine *e, uint32_t route, int64_t now_ms, fg_route_view *out);
/* Counters of a workflow (an id). FG_OK; FG_ERR_FULL: the region has no record free for it; FG_ERR_ARG, FG_ERR_ABI. */
FG_API int32_t fg_engine_workflow(const fg_engine *e, uint32_t workflow, int64_t now_ms, fg_workflow_view *out);

/* ---- one call, in the caller's fg_call; used by one thread at a time, any number of calls at once
 *
 * * Each function fills out with the decision, or returns an error with out->action = fail_closed. FG_ERR_ARG, FG_ERR_ABI; FG_ERR_STATE: c
 * was never begun, or with another policy or region. Functions that take an `attempt` mean its number, 0 the latest; news of an attempt
 * that is over changes nothing, and the latest decision is given again. */

/* Begins a call: r's facts in, the first decision out (proceed, or fail_closed, queue, hold, fallback, degrade before anything was
 * sent). Nothing of r is kept by pointer. FG_ERR_ARG also for a workflow the card does not have; FG_ERR_FULL: the region has no record
 * free for it. */
FG_API int32_t fg_call_begin(const fg_engine *e, fg_call *c, const fg_request *r, int64_t now_ms, fg_decision *out);
/* Permission to send what was decided, asked after its wait: only a `proceed` from here allows one send; the money is held and the route
 * admits it in this call. Else the new decision (hold: ask again in wait_ms). FG_ERR_STATE also while an attempt runs. */
FG_API int32_t fg_call_begin_attempt(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out);
/* The attempt failed: what was seen of it, the next decision out. v is read in this call only. */
FG_API int32_t fg_call_failure(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_evidence *v, int64_t now_ms, fg_decision *out);
/* The attempt ended by itself with this answer: accept, or, when the workflow's output check rejects it, what to do next. */
FG_API int32_t fg_call_success(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *a, int64_t now_ms, fg_decision *out);
/* wake_ms is over: keep_waiting (look again after wake_ms), or the running attempt is out of time, ended as a failure, with decision.cancel
 * its number: hang up. */
FG_API int32_t fg_call_deadline(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out);
/* This host cannot do what was decided. what: FG_UNABLE_* bits, which hold for the rest of the call; the next best decision out. */
FG_API int32_t fg_call_unable(const fg_engine *e, fg_call *c, uint32_t what, int64_t now_ms, fg_decision *out);
/* Begins the next model request of an agent's loop, after an accepted answer: a checkpoint, earlier steps are never sent again. Tokens of
 * the new request, 0 as before. FG_ERR_STATE also before an answer was accepted. */
FG_API int32_t fg_call_step(const fg_engine *e, fg_call *c, uint32_t prompt_tokens, uint32_t max_output_tokens, int64_t now_ms,
                            fg_decision *out);
/* The caller left: the call ends without a verdict on the route; decision.cancel is the attempt to hang up, 0 none. */
FG_API int32_t fg_call_cancel(const fg_engine *e, fg_call *c, int64_t now_ms, fg_decision *out);
/* What a look-up found out about an operation of this call (op, `len` bytes): effect FG_EFFECT_NONE or FG_EFFECT_COMMITTED. A call that
 * ended as reconcile_first is decided again once none is left open. FG_ERR_ARG also for an operation the call does not know. */
FG_API int32_t fg_call_resolved(const fg_engine *e, fg_call *c, const char *op, uint32_t len, uint32_t effect, int64_t now_ms,
                                fg_decision *out);

/* ---- facts of a call without a decision. FG_OK, also for an attempt that is over; FG_ERR_ARG, FG_ERR_ABI, FG_ERR_STATE as above */

/* Something came or went. kind: FG_EVENT_*; value: how many tokens (token, reasoning) or bytes (tool_args), 0 counts as 1; FG_FINISH_*
 * of terminal. */
FG_API int32_t fg_call_event(const fg_engine *e, fg_call *c, uint32_t attempt, uint32_t kind, uint32_t value, int64_t now_ms);
/* Usage the provider reported; FG_ANSWER_USAGE_FINAL settles the attempt's money, once, also after it is over. Other fields are not
 * looked at. */
FG_API int32_t fg_call_usage(const fg_engine *e, fg_call *c, uint32_t attempt, const fg_answer *usage, int64_t now_ms);
/* State (FG_TOOL_*) of an operation of the current step, named by op (`len` bytes; its hash is kept). idempotent: 1 when sending it
 * again under the same id does nothing twice. attempt is not looked at: an operation belongs to the step. */
FG_API int32_t fg_call_tool(const fg_engine *e, fg_call *c, uint32_t attempt, const char *op, uint32_t len, uint32_t state,
                            uint32_t idempotent, int64_t now_ms);
/* The call is dropped without a word: an attempt in flight is neutral, its money stays held. Needs no clock; twice is fine. */
FG_API int32_t fg_call_end(const fg_engine *e, fg_call *c);
/* The latest decision again; changes nothing. */
FG_API int32_t fg_call_decision(const fg_engine *e, const fg_call *c, fg_decision *out);

/* ---- text into the caller's buffer
 *
 * Each returns the bytes the whole text needs, NUL not counted; writes at most cap and always ends with NUL (cap > 0). A NULL or foreign
 * struct gives an empty text. */

/* Why: a line for the call, one for each gate, one for the decision d of the call c. UTF-8, for people; the wording may change. */
FG_API uint32_t fg_explain(const fg_engine *e, const fg_call *c, const fg_decision *d, char *buf, uint32_t cap);
enum { FG_LINE_CALL = 1, FG_LINE_DECISION = 2, FG_LINE_END = 3 };
/* One JSON line of the ledger, without a newline. line: FG_LINE_*; d may be NULL for FG_LINE_CALL. No prompt, key or answer is in it. */
FG_API uint32_t fg_ledger_line(const fg_engine *e, const fg_call *c, const fg_decision *d, uint32_t line, int64_t now_ms, char *buf,
                               uint32_t cap);
typedef struct fg_served { /* how the provider calls the attempt that has just ended */
  uint32_t size, zero;
  fg_str response_id; /* of the answer: the id in its body or first event, or x-generation-id */
  fg_str request_id;  /* of the request: x-request-id, request-id, x-amzn-requestid, apim-request-id */
} fg_served;
/* FG_LINE_DECISION of an attempt's end with its provider's ids, by which a bill's row is found again; in other decisions' lines they are left
 * out. An id is 1 to 128 printable ASCII characters: another is left out, never cut. served NULL: no ids. */
FG_API uint32_t fg_ledger_served(const fg_engine *e, const fg_call *c, const fg_decision *d, const fg_served *served, int64_t now_ms, char *buf,
                                 uint32_t cap);
/* The decision as compact JSON with wire names, the form vectors, bindings and ledger share. p NULL: routes have no names. "{}" for no
 * decision. */
FG_API uint32_t fg_decision_json(const fg_policy *p, const fg_decision *d, char *buf, uint32_t cap);

#ifndef FG_FFI_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif
