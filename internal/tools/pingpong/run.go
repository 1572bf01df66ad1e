package pingpong

import "github.com/verbena-rdma/verbena/internal/tools/tool"

func (v *variant) run(env *tool.Env, args []string) int { return 1 }
