package main

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/tools/asyncwatch"
	"github.com/verbena-rdma/verbena/internal/tools/bench"
	"github.com/verbena-rdma/verbena/internal/tools/capture"
	"github.com/verbena-rdma/verbena/internal/tools/cmtest"
	"github.com/verbena-rdma/verbena/internal/tools/demo"
	"github.com/verbena-rdma/verbena/internal/tools/devinfo"
	"github.com/verbena-rdma/verbena/internal/tools/doctor"
	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	"github.com/verbena-rdma/verbena/internal/tools/explain"
	"github.com/verbena-rdma/verbena/internal/tools/exporter"
	"github.com/verbena-rdma/verbena/internal/tools/ibstat"
	"github.com/verbena-rdma/verbena/internal/tools/perftest"
	"github.com/verbena-rdma/verbena/internal/tools/pingpong"
	"github.com/verbena-rdma/verbena/internal/tools/rdmashow"
	"github.com/verbena-rdma/verbena/internal/tools/rping"
	"github.com/verbena-rdma/verbena/internal/tools/rproxy"
	"github.com/verbena-rdma/verbena/internal/tools/rstools"
	runner "github.com/verbena-rdma/verbena/internal/tools/run"
	"github.com/verbena-rdma/verbena/internal/tools/serve"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/internal/tools/version"
	_ "github.com/verbena-rdma/verbena/provider/soft" // the device
)

var (
	// own lists the project's own programs.
	own = slices.Concat([]tool.Tool{demo.Tool(), bench.Tool(), serve.Tool(), exporter.Tool(), rproxy.Tool(),
		capture.Tool(),
		explain.Tool(), doctor.Tool(), runner.Tool(), version.Tool()}, rdmashow.Tools())
	// tools lists the programs with a C original, whose names they have.
	tools = slices.Concat(devinfo.Tools(), asyncwatch.Tools(), ibstat.Tools(), pingpong.Tools(), perftest.Tools(),
		rping.Tools(),
		cmtest.Tools(), rstools.Tools())
)

// secondProcess runs the second process of demo and bench.
func secondProcess(env *tool.Env, _ []string) int {
	if err := duo.Serve(&endpoint.Second{}); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}
