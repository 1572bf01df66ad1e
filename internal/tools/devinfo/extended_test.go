package devinfo

import (
	"bytes"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Features that the lab's devices lack. The expected text is that of the C program's source.
func TestExtended(t *testing.T) {
	var b bytes.Buffer
	printer{&b}.printExtended(&verbs.DeviceAttr{
		ODPCaps: verbs.ODPCaps{General: 3, RC: 0x3f, UC: verbs.ODPWrite | verbs.ODPFlush,
			UD: verbs.ODPSRQRecv},
		CompletionTimestampMask: 0xff, HCACoreClock: 1000, MaxDMSize: 4096,
		TMCaps:    verbs.TMCaps{MaxRndvHdrSize: 1, MaxNumTags: 2, MaxOps: 3, MaxSGE: 4, Flags: verbs.TMCapRC},
		CQModCaps: verbs.CQModerationCaps{MaxCQCount: 5, MaxCQPeriod: 6},
	})
	for _, want := range []string{
		"\tgeneral_odp_caps:\n\t\t\t\t\tODP_SUPPORT\n\t\t\t\t\tODP_SUPPORT_IMPLICIT\n" +
			"\trc_odp_caps:\n\t\t\t\t\tSUPPORT_SEND\n",
		"\tuc_odp_caps:\n\t\t\t\t\tSUPPORT_WRITE\n\t\t\t\t\tUnknown flags: 0x40\n\tud_odp_caps:\n\t\t\t\t\tSUPPORT_SRQ\n" +
			"\txrc_odp_caps:\n\t\t\t\t\tNO SUPPORT\n",
		"\tcompletion timestamp_mask:\t\t\t0x00000000000000ff\n\thca_core_clock:\t\t\t1000kHZ\n",
		"\tmax_rndv_hdr_size:\t\t1\n\tmax_num_tags:\t\t\t2\n\tmax_ops:\t\t\t3\n\tmax_sge:\t\t\t4\n" +
			"\tflags:\n\t\t\t\t\tIBV_TM_CAP_RC\n",
		"\n\tcq moderation caps:\n\t\tmax_cq_count:\t5\n\t\tmax_cq_period:\t6 us\n\n",
		"\tmaximum available device memory:\t4096Bytes\n\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, b.String())
		}
	}
}
