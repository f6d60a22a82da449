// What one protected call costs with two Go libraries: nanoseconds, median of
// many short rounds. One JSON object a line, read by benchmarks/run.py.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/sony/gobreaker/v2"
)

const size = 2000

var (
	sink    int
	errDown = errors.New("down")
)

// The call that is protected: not inlined, as a real one would not be.
//
//go:noinline
func send() (int, error) { return 1, nil }

func fail() (int, error) { return 0, errDown }

func measure(rounds int, work func()) (median, p99 float64) {
	for i := 0; i < 20*size; i++ {
		work()
	}
	took := make([]float64, rounds)
	for r := range took {
		begun := time.Now()
		for i := 0; i < size; i++ {
			work()
		}
		took[r] = float64(time.Since(begun).Nanoseconds()) / size
	}
	sort.Float64s(took)
	return took[rounds/2], took[rounds*99/100]
}

func must(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "benchmarks/go:", what)
		os.Exit(1)
	}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return "unknown"
}

func main() {
	rounds := flag.Int("rounds", 501, "rounds of each case")
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	report := func(peer, version, path, what string, work func()) {
		median, p99 := measure(*rounds, work)
		_ = out.Encode(map[string]any{
			"peer": peer, "version": version, "path": path, "what": what,
			"ns": median, "p99_ns": p99,
			"allocs":  testing.AllocsPerRun(1000, work),
			"runtime": runtime.Version(),
		})
	}

	report("bare call", runtime.Version(), "bare", "the call alone", func() {
		n, _ := send()
		sink += n
	})

	name, v := "gobreaker", version("github.com/sony/gobreaker/v2")
	closed := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Interval: time.Minute})
	report(name, v, "success", "Execute, closed", func() {
		n, _ := closed.Execute(send)
		sink += n
	})
	rolling := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Interval: time.Minute, BucketPeriod: time.Second})
	report(name, v, "success", "Execute, closed, rolling window", func() {
		n, _ := rolling.Execute(send)
		sink += n
	})
	open := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Timeout: time.Hour})
	for i := 0; i < 20; i++ {
		_, _ = open.Execute(fail)
	}
	must(open.State() == gobreaker.StateOpen, "gobreaker did not open")
	report(name, v, "reject", "Execute, open", func() {
		if _, err := open.Execute(send); err != nil {
			sink++
		}
	})

	name, v = "failsafe-go", version("github.com/failsafe-go/failsafe-go")
	count := circuitbreaker.NewBuilder[int]().WithFailureThresholdRatio(50, 100).Build()
	report(name, v, "success", "permit and record, count window", func() {
		if count.TryAcquirePermit() {
			n, err := send()
			sink += n
			if err == nil {
				count.RecordSuccess()
			}
		}
	})
	timed := circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 8, time.Minute).Build()
	report(name, v, "success", "permit and record, time window", func() {
		if timed.TryAcquirePermit() {
			n, err := send()
			sink += n
			if err == nil {
				timed.RecordSuccess()
			}
		}
	})
	executor := failsafe.With[int](circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 8, time.Minute).Build())
	report(name, v, "success", "executor Get, breaker (time window)", func() {
		n, _ := executor.Get(send)
		sink += n
	})
	both := failsafe.With[int](
		retrypolicy.NewBuilder[int]().WithMaxRetries(2).WithBackoff(time.Second, 10*time.Second).Build(),
		circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 8, time.Minute).Build())
	report(name, v, "success", "executor Get, retry over breaker", func() {
		n, _ := both.Get(send)
		sink += n
	})
	dark := circuitbreaker.NewBuilder[int]().WithDelay(time.Hour).Build()
	dark.Open()
	report(name, v, "reject", "permit refused, open", func() {
		if !dark.TryAcquirePermit() {
			sink++
		}
	})
	shut := failsafe.With[int](dark)
	report(name, v, "reject", "executor Get, open", func() {
		if _, err := shut.Get(send); errors.Is(err, circuitbreaker.ErrOpen) {
			sink++
		}
	})
	must(dark.IsOpen(), "failsafe-go did not stay open")
}
