//go:build hw

package main

import _ "github.com/verbena-rdma/verbena/provider/hw"
