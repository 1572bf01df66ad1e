package soft

import "github.com/verbena-rdma/verbena/verbs"

// QueryECE tells that the device has nothing beyond the standard.
func (*qp) QueryECE() (verbs.ECE, error) { return verbs.ECE{}, nil }

// SetECE refuses what the device does not know, which is everything.
func (*qp) SetECE(e verbs.ECE) error {
	if e.Options != 0 {
		return fail(verbs.EOPNOTSUPP, "the device knows no options %#x of vendor %#x; it has none", e.Options, e.VendorID)
	}
	return nil
}
