//go:build !unix

package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// domainFile skips the test: there are no domains by file here.
func domainFile(tb testing.TB) verbs.XRCDInitAttr {
	tb.Skip("this system has no inodes")
	return verbs.XRCDInitAttr{}
}
