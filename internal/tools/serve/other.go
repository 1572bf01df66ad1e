//go:build !linux

package serve

import "github.com/verbena-rdma/verbena/internal/tools/tool"

func (*options) serve(env *tool.Env, _ *tool.Flags) int {
	return env.Failf("processes can share a device on Linux only: operation not supported")
}
