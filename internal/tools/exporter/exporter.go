// Package exporter is "verbena exporter": the counters and objects of all programs of a host that have an RDMA device
// open, for Prometheus. It asks the programs (internal/control) during each scrape, so programs need no change, and it
// keeps no state.
//
//	exporter.go  the command line and the server    collect.go  the metrics
//
// It imports internal/{control,winsock}, verbs, internal/tools/{tool,version} and Prometheus' client.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/winsock"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "exporter", Short: "metrics of all programs of this host, for Prometheus", Run: run}
}

// The server's limits.
const (
	mostScrapes   = 4 // at the same time; others get status 503
	scrapeTimeout = 10 * time.Second
	readTimeout   = 10 * time.Second
	endTimeout    = 5 * time.Second
)

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]")
	listen := f.String("listen", "127.0.0.1:9879", "serve http://ADDRESS:PORT/metrics; without an address on all")
	once := f.Bool("once", false, "print the metrics and end")
	qps := f.Bool("qps", false, "counters of each queue pair too: many series")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args()))
	}
	c := &collector{source{control.Reports, verbs.Devices}, *qps}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *once {
		err = printOnce(env, c)
	} else {
		err = serve(ctx, env, *listen, c)
	}
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// printOnce writes the metrics in Prometheus' text format.
func printOnce(env *tool.Env, c *collector) error {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return err
	}
	families, err := r.Gather()
	if err != nil {
		return err
	}
	for _, m := range families {
		if _, err := expfmt.MetricFamilyToText(env.Stdout, m); err != nil {
			return err
		}
	}
	return nil
}

// listenError is an error of listening, with the option to change.
func listenError(address string, err error) error {
	if winsock.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--listen %s: another program uses the port: choose another one: %w", address,
			syscall.EADDRINUSE)
	}
	return fmt.Errorf("--listen %s: %w; must be ADDRESS:PORT, with an address of this host or none", address, err)
}

// serve answers scrapes until ctx is done.
func serve(ctx context.Context, env *tool.Env, address string, c *collector) error {
	h, err := handler(c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return listenError(address, err)
	}
	fmt.Fprintf(env.Stdout, "metrics at http://%s/metrics\n", l.Addr())
	s := &http.Server{Handler: h, ReadTimeout: readTimeout, WriteTimeout: readTimeout + scrapeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := s.Shutdown(last); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler returns the pages of the exporter.
func handler(c *collector) (http.Handler, error) {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: mostScrapes, Timeout: scrapeTimeout,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "verbena exporter: /metrics")
	})
	return mux, nil
}
