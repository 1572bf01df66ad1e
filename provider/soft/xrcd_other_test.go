//go:build !unix

package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// domainFile skips the test: this system has no domains by file.
func domainFile(tb testing.TB) verbs.XRCDInitAttr {
	tb.Skip("this system has no inodes")
	return verbs.XRCDInitAttr{}
}
