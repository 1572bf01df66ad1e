package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-01: protect registered memory against forks of the process. RDMAV_FORK_SAFE=1 in the environment does the same.
func Example_e01Fork() {
	if err := verbs.ForkInit(); err != nil { // before the first RegMR
		fmt.Println(err)
	}
	fmt.Println("safe")
	// Output: safe
}
