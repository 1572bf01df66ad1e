//go:build !linux

package serve

import "github.com/verbena-rdma/verbena/internal/tools/tool"

func run(env *tool.Env, _ []string) int {
	return env.Failf("processes can share a device on Linux only: operation not supported")
}
