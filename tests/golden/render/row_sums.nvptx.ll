@row_sums_8_100_0_partial = internal addrspace(3) global [2 x float] poison, align 16

define ptx_kernel void @row_sums_8_100_0(ptr %p0, ptr %p1) "nvvm.maxntid"="2" {
entry:
  %thread.32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %thread = zext i32 %thread.32 to i64
  %block.32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext i32 %block.32 to i64
  %first = icmp eq i64 %thread, 0
  %partial.at = addrspacecast ptr addrspace(3) @row_sums_8_100_0_partial to ptr
  br label %aligned
aligned:
  %t1 = sub i64 101, %thread
  %t2 = trunc i64 %t1 to i32
  %t3 = udiv i32 %t2, 2
  %t4 = zext i32 %t3 to i64
  %t5 = mul i64 %block, 100
  %t6 = add i64 %t5, %thread
  %t8 = getelementptr float, ptr %p0, i64 %t6
  %t12 = icmp slt i64 0, %t4
  br i1 %t12, label %loop1, label %loop1.done
loop1:
  %i1 = phi i64 [ 0, %aligned ], [ %i1.next, %loop1 ]
  %i1.by2 = phi i64 [ 0, %aligned ], [ %i1.by2.next, %loop1 ]
  %t7 = phi float [ 0x0000000000000000, %aligned ], [ %t11, %loop1 ]
  %t9 = getelementptr float, ptr %t8, i64 %i1.by2
  %t10 = load float, ptr %t9, align 4
  %t11 = fadd float %t7, %t10
  %i1.next = add nuw nsw i64 %i1, 1
  %i1.by2.next = add i64 %i1.by2, 2
  %t13 = icmp slt i64 %i1.next, %t4
  br i1 %t13, label %loop1, label %loop1.done
loop1.done:
  %t14 = phi float [ 0x0000000000000000, %aligned ], [ %t11, %loop1 ]
  %t15 = getelementptr float, ptr %partial.at, i64 %thread
  store float %t14, ptr %t15, align 4
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %t16 = icmp slt i64 %thread, 1
  br i1 %t16, label %if2, label %if2.done
if2:
  %t17 = getelementptr float, ptr %partial.at, i64 %thread
  %t18 = load float, ptr %t17, align 4
  %t19 = add i64 %thread, 1
  %t20 = getelementptr float, ptr %partial.at, i64 %t19
  %t21 = load float, ptr %t20, align 4
  %t22 = fadd float %t18, %t21
  %t23 = getelementptr float, ptr %partial.at, i64 %thread
  store float %t22, ptr %t23, align 4
  br label %if2.done
if2.done:
  %t24 = icmp eq i64 %thread, 0
  br i1 %t24, label %if3, label %if3.done
if3:
  %t25 = load float, ptr %partial.at, align 4
  %t26 = getelementptr float, ptr %p1, i64 %block
  store float %t25, ptr %t26, align 4
  br label %if3.done
if3.done:
  ret void
}
