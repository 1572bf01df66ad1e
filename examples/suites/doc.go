// Package suites runs the own tests of other projects over RDMA: miniredis, a server of the Redis protocol, with a
// client. Its calls of net.Listen, net.Dial, tls.Listen and tls.Dial become those of package rnet; nothing else
// changes. The module is separate, so that Verbena's module does not depend on these projects.
package suites

import (
	_ "github.com/alicebob/miniredis/v2" // its version is in go.mod

	_ "github.com/verbena-rdma/verbena/examples/suites/rnet"
)
