module github.com/verbena-rdma/verbena/examples/suites

go 1.25.0

replace github.com/verbena-rdma/verbena => ../..

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/verbena-rdma/verbena v0.0.0-00010101000000-000000000000
)

require (
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
